use std::time::{Duration, UNIX_EPOCH};

use super::loopback::{Loopback, Reply, SECRET, TOKEN, error};
use super::*;

fn listing() -> Query {
    Query::new("DescribeInstances", Params::new().set("MaxResults", 1000))
}

/// One call, and what came of it.
async fn call(server: &Loopback) -> Result<InstancesAnswer, PortError> {
    Ok(Ec2::new(&server.cloud()).call(&listing()).await?)
}

const EMPTY: &str = "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>";

/// The expected values are those of botocore's own signer, given the same request.
#[test]
fn requests_are_signed_as_aws_signs_them() {
    let body = "Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=tag%3Aondeck%3Apool\
                &Filter.1.Value.1=acme%2Fweb+site";
    let now = UNIX_EPOCH + Duration::from_secs(1_794_726_000);
    for (token, names, expected) in [
        (
            None,
            "content-type;host;x-amz-date",
            "202fc43092398fdf45e8b0823ed9a0e545ac3d6e8d1f3a1a5af54164a0e6c4e3",
        ),
        (
            Some("SESSIONTOKEN/with+signs=="),
            "content-type;host;x-amz-date;x-amz-security-token",
            "347063748be3e455ccd004b36d6f0518b4b82baa4f32364bc95cae458354f9ee",
        ),
    ] {
        let keys = Credentials::new("AKIDEXAMPLE", SECRET, token.map(str::to_owned), None, "test");
        let mut request = Request::new(SdkBody::from(body));
        request.set_method("POST").unwrap();
        request.set_uri("https://ec2.eu-central-1.amazonaws.com/").unwrap();
        let kind = "application/x-www-form-urlencoded; charset=utf-8";
        request.headers_mut().insert("content-type", kind);
        request.headers_mut().insert("user-agent", "anything");
        let headers = signature(&request, body, &keys, ("ec2", "eu-central-1"), now).unwrap();
        let header = |name| headers.iter().find(|(key, _)| *key == name).unwrap().1.clone();
        assert_eq!(header("x-amz-date"), "20261115T070000Z");
        assert_eq!(
            header("authorization"),
            format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261115/eu-central-1/ec2/aws4_request, \
                 SignedHeaders={names}, Signature={expected}"
            )
        );
    }
}

#[tokio::test]
async fn what_may_pass_is_unavailable() {
    for reply in [
        Reply::Say(503, error("RequestLimitExceeded", "Request limit exceeded.")),
        Reply::Say(400, error("Throttling", "Rate exceeded")),
        Reply::Say(429, String::new()),
        Reply::Say(500, error("InternalError", "An internal error has occurred")),
        Reply::Say(502, "<html><body>Bad Gateway</body></html>".to_owned()),
        Reply::Say(503, String::new()),
        Reply::Say(200, "<DescribeInstancesResponse><reservationSet>".to_owned()),
        Reply::Say(200, String::new()),
        Reply::Say(200, "no XML at all".to_owned()),
        Reply::Cut(EMPTY.to_owned()),
        Reply::HangUp,
    ] {
        let server = Loopback::replying([reply.clone()]).await;
        let error = call(&server).await.unwrap_err();
        assert!(
            matches!(error, PortError::Unavailable { service: "EC2", .. }),
            "{reply:?}: {error}"
        );
        assert!(error.to_string().contains("DescribeInstances"), "{error}");
        assert_eq!(server.asked().len(), 1, "nothing is repeated here");
    }
}

#[tokio::test]
async fn nobody_waits_for_ever() {
    let server = Loopback::replying([Reply::Silence]).await;
    let query = listing().answered_within(Duration::from_millis(50));
    let answer = Ec2::new(&server.cloud()).call::<Done>(&query).await;
    let error = PortError::from(answer.unwrap_err());
    assert!(matches!(error, PortError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("no answer within"), "{error}");
    assert_eq!(Query::new("CreateFleet", Params::new()).limit(), Duration::from_secs(60));
}

#[tokio::test]
async fn nobody_being_there_is_unavailable() {
    let mut gone = Loopback::replying([]).await;
    // A port that was free a moment ago, and that has no listener.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    gone.url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = call(&gone).await.unwrap_err();
    assert!(matches!(error, PortError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn what_will_not_pass_says_what_to_do() {
    for (status, code, hint) in [
        (400, "RequestExpired", "credentials have expired"),
        (400, "ExpiredToken", "credentials have expired"),
        (403, "UnauthorizedOperation", "ec2:DescribeInstances"),
        (401, "AuthFailure", "ec2:DescribeInstances"),
        (400, "InvalidParameterValue", "not expected to pass"),
        (404, "", "not expected to pass"),
    ] {
        let body = if code.is_empty() { String::new() } else { error(code, "It is so.") };
        let server = Loopback::replying([Reply::Say(status, body)]).await;
        match call(&server).await.unwrap_err() {
            PortError::Unusable { service: "EC2", reason, hint: given } => {
                assert!(given.contains(hint), "{given}");
                assert!(reason.contains(code), "{reason}");
            }
            other => panic!("{code}: {other}"),
        }
    }
}

#[tokio::test]
async fn keys_that_have_expired_are_not_used_again() {
    for (code, held) in [("ExpiredToken", false), ("RequestExpired", false), ("Throttling", true)] {
        let server = Loopback::replying([Reply::Say(400, error(code, "It is so."))]).await;
        let ec2 = Ec2::new(&server.cloud());
        ec2.call::<Done>(&listing()).await.unwrap_err();
        assert_eq!(ec2.keys.are_held().await, held, "{code}");
    }
}

#[tokio::test]
async fn no_secret_is_ever_told() {
    let canonical = format!(
        "The request signature we calculated does not match the signature you provided, {SECRET}.\n\
         \nThe Canonical String for this request should have been\n'POST\n/\n\n\
         x-amz-security-token:{TOKEN}\n'"
    );
    let server =
        Loopback::replying([Reply::Say(403, error("SignatureDoesNotMatch", &canonical))]).await;
    let cloud = server.cloud();
    let ec2 = Ec2::new(&cloud);
    let failed = ec2.call::<Done>(&listing()).await.unwrap_err();
    let refused = PortError::from(failed.clone());
    assert!(refused.to_string().contains("does not match"), "{refused}");
    let told = format!("{ec2:?} {:?} {cloud:?} {failed:?} {refused:?}", ec2.keys);
    assert!(!told.contains(SECRET) && !told.contains(TOKEN), "{told}");
    assert!(!told.contains("Signature=") && !told.contains("Canonical"), "{told}");
    assert_eq!(server.asked()[0].header("x-amz-security-token"), TOKEN, "but it is sent");
}

#[tokio::test]
async fn a_wrong_clock_is_put_right_by_the_refusal() {
    for code in DISTRUST {
        let refused = error(code, "Request has expired.");
        let server = Loopback::replying([
            Reply::SayAt(403, refused, "Fri, 01 Jan 2100 00:00:00 GMT"),
            Reply::SayAt(200, EMPTY.to_owned(), "Fri, 01 Jan 2100 00:00:01 GMT"),
            Reply::SayAt(400, error(code, "Again."), "Fri, 01 Jan 2100 00:00:02 GMT"),
        ])
        .await;
        let ec2 = Ec2::new(&server.cloud());
        let error = PortError::from(ec2.call::<Done>(&listing()).await.unwrap_err());
        assert!(matches!(error, PortError::Unavailable { .. }), "{error}");
        ec2.call::<Done>(&listing()).await.unwrap();
        let last = ec2.call::<Done>(&listing()).await.unwrap_err();
        assert!(matches!(last, Failed::Refused(_)), "the clock was right: {last:?}");
        let years: Vec<String> =
            server.asked().iter().map(|asked| asked.header("x-amz-date")[..4].to_owned()).collect();
        assert_ne!(years[0], "2100");
        assert_eq!(years[1..], ["2100", "2100"]);
    }
}

#[tokio::test]
async fn calls_share_a_connection() {
    let server = Loopback::saying([EMPTY, EMPTY, EMPTY].map(str::to_owned)).await;
    let ec2 = Ec2::new(&server.cloud());
    for _ in 0..3 {
        ec2.call::<InstancesAnswer>(&listing()).await.unwrap();
    }
    assert_eq!((server.asked().len(), server.connections()), (3, 1));
    let asked = &server.asked()[0];
    assert!(asked.header("user-agent").starts_with("ondeck/"), "{asked:?}");
    models::check(&server.asked());
}
