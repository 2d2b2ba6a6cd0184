//! Routes one call to its service and injects the planned fault.

use std::time::SystemTime;

use bytes::Bytes;
use serde_json::Value;

use crate::aws::call::{Call, Service, WEB_IDENTITY};
use crate::aws::faults::answers;
use crate::aws::faults::batches::PartialBatch;
use crate::aws::faults::{AwsFault, Plan};
use crate::timestamps;

use crate::http::{Answer, Cut, Outcome};

use super::serve::EndpointHandler;

/// Performs a call that an endpoint has received, as far as the plan allows.
pub(super) async fn perform(at: &EndpointHandler, call: &Call, plan: Plan) -> Outcome {
    if !plan.delay.is_zero() {
        tokio::time::sleep(plan.delay).await;
    }
    let service = call.service;
    Outcome::Answered(match plan.fault {
        None | Some(AwsFault::Delay(_)) => serve(at, call).await,
        Some(AwsFault::Reset) => return Outcome::Cut(Cut::Reset),
        Some(AwsFault::LostAnswer) => {
            serve(at, call).await;
            return Outcome::Cut(Cut::Closed);
        }
        Some(AwsFault::CutBody) => return Outcome::Halved(serve(at, call).await),
        Some(AwsFault::Hang) => std::future::pending().await,
        Some(AwsFault::Silence) => {
            serve(at, call).await;
            std::future::pending().await
        }
        Some(AwsFault::Status(status)) => answers::server_error(service, status),
        Some(AwsFault::Refusal(status, code)) => {
            answers::refusal(service, status, code, "The request is refused by a test.")
        }
        Some(AwsFault::Throttle) => answers::throttled(service),
        Some(AwsFault::ExpiredToken) => answers::expired(service),
        Some(AwsFault::Skew(ahead)) => skewed(at, call, ahead).await,
        Some(AwsFault::EmptyReceive) => answers::done("{}".to_owned()),
        Some(AwsFault::DuplicateDelivery) => {
            let answer = serve(at, call).await;
            at.shared.duplicates.make(&at.shared.upstreams, call, &answer).await;
            answer
        }
        Some(AwsFault::PartialBatch) => partial(at, call).await,
    })
}

/// Forwards the call to its emulator or to our EC2, if the caller's policies allow it.
async fn serve(at: &EndpointHandler, call: &Call) -> Answer {
    let shared = &at.shared;
    let upstreams = &shared.upstreams;
    if let (Some(enforcement), WEB_IDENTITY) = (&shared.enforcement, &*call.operation)
        && call.service == Service::Sts
    {
        return enforcement.assume(call);
    }
    if let Some(enforcement) = &shared.enforcement
        && let Some(refusal) = enforcement.refuse(upstreams, &shared.ec2, call).await
    {
        return refusal;
    }
    match call.service {
        Service::DynamoDb => match &shared.meter {
            Some(meter) => meter.forward(upstreams, call, &at.endpoint).await,
            None => upstreams.dynamodb(call).await,
        },
        // The parameters of launch templates are EC2's, which reads them at each launch.
        Service::Secrets if call.operation == "GetParameters" => shared.ec2.image_parameters(call),
        Service::Logs | Service::Secrets => upstreams.others(call).await,
        Service::Sqs => {
            let answer = shared.long_polls.forward(upstreams, call).await;
            shared.duplicates.rename(call, answer)
        }
        Service::Sts => {
            let answer = upstreams.others(call).await;
            if let Some(enforcement) = &shared.enforcement {
                enforcement.note_assumed(&shared.ec2, call, &answer);
            }
            answer
        }
        Service::Ec2 => shared.ec2.answer(call),
        Service::Quotas => shared.ec2.quota(call),
        Service::Iam => shared.ec2.profile(call),
        Service::Unknown => {
            let message = format!("nothing stands in for this here: {}", call.operation);
            answers::refusal(Service::Unknown, 400, "InvalidAction", &message)
        }
    }
}

async fn skewed(at: &EndpointHandler, call: &Call, ahead: i64) -> Answer {
    let now = timestamps::shifted(SystemTime::now(), ahead);
    let mut answer = match answers::out_of_time(call, now) {
        Some(refusal) => refusal,
        None => serve(at, call).await,
    };
    answers::date(&mut answer, now);
    answer
}

async fn partial(at: &EndpointHandler, call: &Call) -> Answer {
    let Some(mut cut) = PartialBatch::of(call) else { return serve(at, call).await };
    let Some(forwarded) = cut.forwarded.take() else {
        return answers::done(cut.tell(None).to_string());
    };
    let answer = serve(at, &call.with_json(forwarded)).await;
    match serde_json::from_slice::<Value>(&answer.body) {
        Ok(body) if answer.status.is_success() => {
            with_body(answer, cut.tell(Some(body)).to_string())
        }
        _ => answer,
    }
}

/// Replaces an answer's body, and removes the checksum of the old one.
pub(super) fn with_body(mut answer: Answer, body: impl Into<Bytes>) -> Answer {
    answer.headers.remove("x-amz-crc32");
    answer.body = body.into();
    answer
}
