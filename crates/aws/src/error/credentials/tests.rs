use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::sts::AssumeRoleProvider;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_smithy_async::rt::sleep::{AsyncSleep, Sleep, TokioSleep};
use aws_smithy_async::time::SystemTimeSource;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::ports::{AgentStore as _, Pool as _, PortResult};

use super::*;
use crate::cloud::Cloud;
use crate::ec2::loopback::{Loopback, Reply, SECRET, TOKEN};
use crate::ec2::{Done, Ec2, Params, Query};
use crate::error::{DYNAMODB, EC2, SQS};
use crate::pool::SqsPool;
use crate::store::DynamoStore;

/// One call of a service.
async fn call(service: Service, cloud: &Cloud) -> PortResult<()> {
    match service {
        DYNAMODB => DynamoStore::new(cloud).settings().await.map(drop),
        SQS => SqsPool::new(cloud).depth(&ResourceClass::new("large").unwrap()).await.map(drop),
        _ => {
            let query = Query::new("DescribeInstances", Params::new());
            Ok(Ec2::new(cloud).call::<Done>(&query).await.map(drop)?)
        }
    }
}

/// The way to a server that is both STS and the service.
fn config(server: &Loopback) -> SdkConfig {
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(Duration::from_secs(60));
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(&server.url)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts.build())
        .sleep_impl(TokioSleep::new())
        .time_source(SystemTimeSource::new())
        .build()
}

/// The same, where STS has to be asked for credentials.
async fn cloud(server: &Loopback, config: SdkConfig) -> Cloud {
    let keys = Credentials::new("AKIDEXAMPLE", SECRET, None, None, "test");
    let role = AssumeRoleProvider::builder("arn:aws:iam::123456789012:role/ci")
        .session_name("test")
        .configure(&config)
        .build_from_provider(keys)
        .await;
    with(server, config, role)
}

fn with(
    server: &Loopback,
    config: SdkConfig,
    provider: impl ProvideCredentials + 'static,
) -> Cloud {
    let provider = SharedCredentialsProvider::new(provider);
    let config = config.into_builder().credentials_provider(provider).build();
    Cloud { config, ..server.cloud() }
}

fn refusal(code: &str) -> String {
    format!(
        "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error>\
         <Type>Sender</Type><Code>{code}</Code><Message>It is so.</Message></Error>\
         <RequestId>1</RequestId></ErrorResponse>"
    )
}

const GIVEN: &str = "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
    <AssumeRoleResult><Credentials><AccessKeyId>ASIAGIVEN</AccessKeyId>\
    <SecretAccessKey>secret</SecretAccessKey><SessionToken>token</SessionToken>\
    <Expiration>2100-01-01T00:00:00Z</Expiration></Credentials><AssumedRoleUser>\
    <AssumedRoleId>A:test</AssumedRoleId><Arn>arn:aws:sts::123456789012:assumed-role/ci/test</Arn>\
    </AssumedRoleUser></AssumeRoleResult></AssumeRoleResponse>";

#[tokio::test]
async fn what_keeps_sts_from_answering_passes() {
    for service in [DYNAMODB, SQS, EC2] {
        for reply in [
            Reply::Say(503, String::new()),
            Reply::Say(500, refusal("InternalFailure")),
            Reply::Say(400, refusal("Throttling")),
            Reply::Say(429, String::new()),
            Reply::Say(200, "no XML at all".to_owned()),
            Reply::Cut(GIVEN.to_owned()),
            Reply::HangUp,
        ] {
            let given = Reply::Say(200, GIVEN.to_owned());
            let there = Reply::Say(503, String::new());
            let server = Loopback::replying([reply.clone(), given, there]).await;
            let cloud = cloud(&server, config(&server)).await;
            match call(service, &cloud).await.unwrap_err() {
                PortError::Unavailable { service: told, reason } => {
                    assert_eq!(told, service);
                    assert!(reason.contains("credentials"), "{reply:?}: {reason}");
                }
                other => panic!("{service}, {reply:?}: {other}"),
            }
            assert_eq!(server.actions(), ["AssumeRole"], "nothing is repeated here");
            call(service, &cloud).await.unwrap_err();
            let asked = server.asked();
            assert_eq!(asked.len(), 3, "{service}: STS, STS again, and the service itself");
            assert!(asked[2].header("authorization").contains("Credential=ASIAGIVEN/"));
        }
    }
}

#[tokio::test]
async fn time_that_is_up_passes() {
    for service in [DYNAMODB, SQS, EC2] {
        let server = Loopback::replying([Reply::Silence]).await;
        let timeouts =
            TimeoutConfig::builder().operation_attempt_timeout(Duration::from_millis(100));
        let config = config(&server).into_builder().timeout_config(timeouts.build()).build();
        let error = call(service, &cloud(&server, config).await).await.unwrap_err();
        assert!(matches!(error, PortError::Unavailable { .. }), "{service}: {error}");
    }
}

/// A provider that never comes to an end.
#[derive(Debug)]
struct Endless;

impl ProvideCredentials for Endless {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(std::future::pending())
    }
}

/// A clock on which everything takes no time.
#[derive(Debug)]
struct Hasty;

impl AsyncSleep for Hasty {
    fn sleep(&self, _: Duration) -> Sleep {
        Sleep::new(std::future::ready(()))
    }
}

#[tokio::test]
async fn the_limit_of_the_sdk_itself_passes() {
    for service in [DYNAMODB, SQS] {
        let server = Loopback::replying([]).await;
        let none = TimeoutConfig::builder().build();
        let config = config(&server).into_builder().timeout_config(none).sleep_impl(Hasty).build();
        let error = call(service, &with(&server, config, Endless)).await.unwrap_err();
        assert!(matches!(error, PortError::Unavailable { .. }), "{service}: {error}");
        assert!(error.to_string().contains(TIMED_OUT), "{service}: {error}");
    }
}

#[tokio::test]
async fn what_sts_refuses_is_for_a_person() {
    for service in [DYNAMODB, SQS, EC2] {
        for (status, code) in [
            (403, "AccessDenied"),
            (403, "InvalidClientTokenId"),
            (400, "ExpiredTokenException"),
            (400, "ValidationError"),
            (403, "RegionDisabledException"),
        ] {
            let server = Loopback::replying([Reply::Say(status, refusal(code))]).await;
            let cloud = cloud(&server, config(&server)).await;
            match call(service, &cloud).await.unwrap_err() {
                PortError::Unusable { service: told, reason, hint } => {
                    assert_eq!(told, service);
                    assert!(reason.contains(code) && reason.contains("It is so."), "{reason}");
                    assert!(hint.contains("AWS_ACCESS_KEY_ID"), "{hint}");
                }
                other => panic!("{service}, {code}: {other}"),
            }
        }
    }
}

#[tokio::test]
async fn what_was_signed_is_not_repeated() {
    for service in [DYNAMODB, SQS, EC2] {
        for code in ["SignatureDoesNotMatch", "InternalFailure", "InvalidIdentityToken"] {
            let explained = refusal(code).replace(
                "It is so.",
                &format!("It does not match.\n\nIt was\n'POST\nx-amz-security-token:{TOKEN}\n'"),
            );
            let server = Loopback::replying([Reply::Say(403, explained)]).await;
            let cloud = cloud(&server, config(&server)).await;
            let error = call(service, &cloud).await.unwrap_err();
            assert!(error.to_string().contains("It does not match."), "{service}: {error}");
            assert!(!format!("{error} {error:?}").contains(TOKEN), "{service}: {error:?}");
        }
    }
}

#[tokio::test]
async fn to_have_none_is_for_a_person() {
    for service in [DYNAMODB, SQS, EC2] {
        let server = Loopback::replying([]).await;
        let cloud = Cloud { config: config(&server), ..server.cloud() };
        let error = call(service, &cloud).await.unwrap_err();
        assert!(matches!(error, PortError::Unusable { .. }), "{service}: {error}");
    }
}

#[test]
fn what_is_wrong_is_looked_for_behind_what_hands_it_on() {
    let handed_on = |inner: CredentialsError| CredentialsError::provider_error(inner);
    let missing = || io::Error::from(io::ErrorKind::NotFound);
    for (error, passes) in [
        (CredentialsError::not_loaded("nothing"), false),
        (CredentialsError::invalid_configuration("a loop"), false),
        (handed_on(CredentialsError::not_loaded("nothing")), false),
        (handed_on(CredentialsError::invalid_configuration("a loop")), false),
        (CredentialsError::provider_error(missing()), false),
        (CredentialsError::provider_timed_out(Duration::from_secs(1)), true),
        (CredentialsError::provider_error("503"), true),
        (CredentialsError::unhandled("no JSON"), true),
        (handed_on(handed_on(CredentialsError::unhandled("no JSON"))), true),
        (CredentialsError::provider_error(io::Error::from(io::ErrorKind::ConnectionReset)), true),
    ] {
        let told = not_sent(EC2, "Action", &error);
        assert_eq!(matches!(told, PortError::Unavailable { .. }), passes, "{error:?}: {told}");
    }
}
