//! What is written down for later: by this version or another, and read by either.

use std::collections::BTreeMap;

use ondeck_core::inputs::times::TIMES;
use ondeck_core::model::credentials::{Credentials, Minted};
use ondeck_core::model::demand::{Demand, FailedRescues, JobsRerun, RescueLease};
use ondeck_core::model::ids::{IntentId, RunId};
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::settings::Settings;
use ondeck_core::modes::provision::ProvisionOptions;
use proptest::prelude::*;

use super::strategies::{
    assert_readable, class, config, corrupted, json, ms, patterns, run_id, suffix, text, time,
    usage,
};

fn demand() -> impl Strategy<Value = Demand> {
    let known = (0..TIMES.len(), 1_u64..2_592_000_000)
        .prop_map(|(n, millis)| (TIMES[n].input.to_owned(), TIMES[n].format(ms(millis))));
    let times = prop::collection::vec(prop_oneof![4 => known, 1 => (text(), text())], 0..5);
    let failed_rescues = proptest::option::of((any::<u32>(), time()))
        .prop_map(|vain| vain.map(|(times, at)| FailedRescues { times, at }));
    let run = (run_id(), suffix());
    let asked = (run, any::<u32>(), class(), usage(), proptest::option::of(patterns()));
    (asked, times, any::<bool>(), time(), failed_rescues).prop_map(
        |(
            ((run, label_suffix), count, class, usage, types),
            times,
            capacity_fallback,
            at,
            failed_rescues,
        )| {
            let asked = ProvisionOptions { class, usage, types, ..ProvisionOptions::default() };
            Demand {
                run,
                options: ProvisionOptions { count, capacity_fallback, label_suffix, ..asked },
                times: times.into_iter().collect(),
                at,
                failed_rescues,
                rerun: failed_rescues.map(|it| JobsRerun { by: u64::from(it.times), at: it.at }),
                lease: failed_rescues
                    .map(|it| RescueLease { holder: u64::from(it.times), until: it.at }),
                labels: failed_rescues
                    .map(|it| MachineLabel::new(format!("m{:032x}", it.times)).unwrap())
                    .into_iter()
                    .collect(),
            }
        },
    )
}

fn minted() -> impl Strategy<Value = Minted> {
    (text(), time(), time()).prop_map(|(target, minted_at, expires_at)| Minted {
        target,
        minted_at,
        expires_at,
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_demand_survives_being_written(demand in demand()) {
        let text = serde_json::json!(demand).to_string();
        prop_assert_eq!(Demand::read(&demand.run, &text), Some(demand));
    }

    #[test]
    fn what_is_asked_for_again_is_what_was_asked_for(demand in demand(), jobs in any::<u32>()) {
        let again = demand.again(jobs);
        let count = again.options.count;
        prop_assert!(count >= 1 && count <= demand.options.count.max(1));
        prop_assert!(count <= jobs.max(1));
        let known = |name: &str| TIMES.iter().find(|row| row.input == name);
        for (name, text) in &demand.times {
            let given = again.times.0.iter().find(|(input, _)| input == name);
            let expected = known(name).and_then(|row| row.parse(text).ok());
            prop_assert_eq!(given.map(|(_, span)| *span), expected, "{}", name);
        }
        let written = Demand::of(&again, demand.at);
        prop_assert!(written.times.iter().all(|(name, text)| demand.times.get(name) == Some(text)));
    }

    /// Never sooner than it was, never later than in an hour, and never again at once.
    #[test]
    fn attempts_in_vain_become_rarer(demand in demand(), at in 0_u64..4_000_000_000_000) {
        let at = ondeck_core::model::timestamp::Timestamp::from_millis(at);
        let first = demand.clone().failed_again(at).failed_rescues.unwrap();
        let second = demand.failed_again(at).failed_again(at).failed_rescues.unwrap();
        prop_assert!(first.not_before() <= second.not_before());
        prop_assert!(at + ms(60_000) <= first.not_before());
        prop_assert!(second.not_before() <= at + ms(3_600_000));
        prop_assert_eq!(second.times, first.times.saturating_add(1));
    }

    #[test]
    fn any_text_is_a_demand_or_none(
        run in run_id(),
        text in prop_oneof![
            text(), json().prop_map(|value| value.to_string()),
            corrupted(demand().prop_map(|demand| serde_json::json!(demand).to_string())),
        ]
    ) {
        if let Some(demand) = Demand::read(&run, &text) {
            let text = serde_json::json!(demand).to_string();
            prop_assert_eq!(Demand::read(&run, &text), Some(demand));
        }
    }

    #[test]
    fn a_note_of_credentials_survives_being_written(minted in minted()) {
        let text = serde_json::to_string(&minted).unwrap();
        let map = BTreeMap::from([("credentials-minted".to_owned(), text)]);
        prop_assert_eq!(Settings::from_map(&map).unwrap().minted, Some(minted));
    }

    #[test]
    fn a_note_that_cannot_be_read_is_none(
        text in prop_oneof![
            text(), corrupted(minted().prop_map(|minted| serde_json::to_string(&minted).unwrap()))
        ]
    ) {
        let map = BTreeMap::from([("credentials-minted".to_owned(), text)]);
        prop_assert!(Settings::from_map(&map).is_ok());
    }

    #[test]
    fn credentials_do_not_show_themselves(
        (registration, removal) in ("[A-Z]{29}", "[A-Z]{29}"), expires_at in time()
    ) {
        let credentials = Credentials {
            registration: Secret::new(registration.as_str()),
            removal: Secret::new(removal.as_str()),
            expires_at,
        };
        let shown = format!("{credentials:?} {credentials:#?}");
        prop_assert!(!shown.contains(&registration) && !shown.contains(&removal), "{}", shown);
    }

    #[test]
    fn an_id_is_kept_to_the_letter_or_refused_by_name(text in text()) {
        match RunId::new(text.as_str()) {
            Ok(run) => {
                prop_assert_eq!(run.as_str(), text.as_str());
                prop_assert_eq!(serde_json::from_value::<RunId>(serde_json::json!(run)).unwrap(), run);
            }
            Err(error) => {
                prop_assert!(error.to_string().starts_with("run id "), "{}", error);
                assert_readable(&error.to_string());
            }
        }
        if let Err(error) = IntentId::new(text.as_str()) {
            prop_assert!(error.to_string().starts_with("intent id "), "{}", error);
        }
    }
}
