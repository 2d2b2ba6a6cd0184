//! For fuzzers and properties: what AWS may answer, read in every way that it is read, and what
//! must hold of each.

pub use crate::ec2::fuzzing::ec2_answer;

/// Reads what the metadata service says of a machine that will be taken away.
pub fn spot_notice(text: &str) {
    readable(&crate::imds::interruption(text));
    readable(&crate::imds::rebalance(text));
}

/// Reads the name that a machine's tag gives its pool.
pub fn pool_name(text: &str) {
    match text.parse::<crate::PoolName>() {
        Ok(name) => assert_eq!(name.to_string(), text, "a name is kept to the letter"),
        Err(error) => readable(&error.to_string()),
    }
}

/// Fails unless the text is one line of readable length.
pub(crate) fn readable(shown: &str) {
    assert!(!shown.contains(char::is_control), "more than a line: {shown:?}");
    assert!(shown.chars().count() < 1_500, "too long to read: {shown}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One of each answer, so that what is corrupt is nearly right.
    const ANSWERS: [&str; 5] = [
        "<CreateFleetResponse><fleetInstanceSet><item><instanceIds><item>i-1</item></instanceIds>\
         <lifecycle>spot</lifecycle></item></fleetInstanceSet><errorSet><item><errorCode>a\
         </errorCode><errorMessage>b</errorMessage></item></errorSet></CreateFleetResponse>",
        "<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-1\
         </instanceId><cpuOptions><coreCount>1</coreCount><threadsPerCore>2</threadsPerCore>\
         </cpuOptions><tagSet><item><key>a</key><value>b</value></item></tagSet></item>\
         </instancesSet></item></reservationSet></DescribeInstancesResponse>",
        "<R><launchTemplate><defaultVersionNumber>1</defaultVersionNumber></launchTemplate></R>",
        "<R><launchTemplateVersion><launchTemplateId>lt-1</launchTemplateId><versionNumber>1\
         </versionNumber></launchTemplateVersion></R>",
        "<Response><Errors><Error><Code>AuthFailure</Code><Message>you sent\nIQoJb3JpZ2luX2VjEXA\
         MPLETOKEN==</Message></Error></Errors></Response>",
    ];

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            "(?s).{0,20}",
            "[<>&/!?;\\[\\]-]{1,9}",
            Just("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned()),
            Just("99999999999999999999999".to_owned()),
            "[a-z]{2000,3000}",
        ]
    }

    fn corrupted() -> impl Strategy<Value = String> {
        let place = (any::<prop::sample::Index>(), 0..20_usize, text());
        let places = prop::collection::vec(place, 0..4);
        (proptest::sample::select(&ANSWERS[..]), places).prop_map(|(answer, places)| {
            places.into_iter().fold(answer.to_owned(), |answer, (at, length, instead)| {
                let letters: Vec<char> = answer.chars().collect();
                let from = at.index(letters.len() + 1);
                let to = (from + length).min(letters.len());
                let (before, after) = (&letters[..from], &letters[to..]);
                before.iter().copied().chain(instead.chars()).chain(after.iter().copied()).collect()
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn errors_are_of_use_and_tell_no_secret_for_any_answer_of_ec2(
            status in proptest::sample::select(&[200_u16, 200, 200, 302, 400, 401, 403, 500, 503][..]),
            body in prop_oneof![8 => corrupted().prop_map(String::into_bytes),
                                1 => prop::collection::vec(any::<u8>(), 0..200)],
        ) {
            ec2_answer(status, &body);
        }

        #[test]
        fn any_notice_of_the_end_is_told_in_a_line(
            whole in text(), action in text(), time in text()
        ) {
            spot_notice(&whole);
            spot_notice(&serde_json::json!({ "action": action, "time": time }).to_string());
            spot_notice(&serde_json::json!({ "action": [action], "time": 7 }).to_string());
        }

        #[test]
        fn any_text_is_a_pool_or_is_refused_in_a_line(text in text()) {
            pool_name(&text);
        }
    }
}
