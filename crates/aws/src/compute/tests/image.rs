//! What the launch template takes from the image.

use super::*;

const PARAMETER: &str = "/images/ci";
const ALIAS: (&str, &str) = ("ami", "resolve:ssm:/images/ci");
const VOLUME: &str = "LaunchTemplateData.BlockDeviceMapping.1";

fn parameter(value: &str) -> Reply {
    let parameter = serde_json::json!({ "Name": PARAMETER, "Value": value });
    let answer = serde_json::json!({ "Parameters": [parameter], "InvalidParameters": [] });
    Reply::Say(200, answer.to_string())
}

/// The settings that a refresh which checks everything passes on to set-up.
async fn looked_up(server: &Loopback, settings: &Settings) -> PortResult<Settings> {
    let found = compute(server).look_up(settings).await?;
    let backend = settings.backend.clone().into_iter().chain(found).collect();
    Ok(Settings { backend, ..settings.clone() })
}

#[tokio::test]
async fn a_larger_volume_asks_the_image_for_its_device() {
    let server =
        Loopback::replying([no_template(), image(), template("CreateLaunchTemplate", 1)]).await;
    compute(&server).set_up(&settings(&[("volume-size-gb", "40")])).await.unwrap();
    models::check(&server.asked());
    let created = &server.asked()[2];
    let volume = "LaunchTemplateData.BlockDeviceMapping.1";
    assert_eq!(created.param(&format!("{volume}.DeviceName")), "/dev/xvda");
    assert_eq!(created.param(&format!("{volume}.Ebs.VolumeSize")), "40");
    assert_eq!(created.param(&format!("{volume}.Ebs.Encrypted")), "true");
    let unknown = Reply::Say(400, error("InvalidAMIID.NotFound", "Does not exist."));
    let server = Loopback::replying([no_template(), unknown]).await;
    let failed = compute(&server).set_up(&settings(&[("volume-size-gb", "40")])).await.unwrap_err();
    assert!(matches!(&failed, PortError::Setting(setting) if setting.name == "ami"), "{failed}");
}

#[tokio::test]
async fn a_public_image_without_a_download_of_the_agent_is_warned_of() {
    let sha = "a".repeat(64);
    let download = [("agent-url", "https://example.com/ondeck"), ("agent-sha256", sha.as_str())];
    let public = ("ami", "resolve:ssm:/aws/service/canonical/ubuntu/ami-id");
    let server = Loopback::replying([]).await;
    let notice = |given: &[(&str, &str)]| compute(&server).notice(&settings(given));
    let told = notice(&[public]).unwrap();
    assert!(told.contains("agent-url is not set: resolve:ssm:/aws/service/"), "{told}");
    assert_eq!(notice(&[public, download[0], download[1]]), None);
    assert_eq!(notice(&[ALIAS]), None, "it may have the agent");

    let Reply::Say(status, body) = image() else { panic!("a reply") };
    let body = body.replace("</item>", "<isPublic>true</isPublic></item>");
    let created = template("CreateLaunchTemplate", 1);
    let server = Loopback::replying([no_template(), Reply::Say(status, body), created]).await;
    let compute = compute(&server);
    assert_eq!(compute.notice(&settings(&[])), None, "nothing is known of it yet");
    compute.set_up(&settings(&[])).await.unwrap();
    assert!(compute.notice(&settings(&[])).is_some());
    assert_eq!(compute.notice(&settings(&download)), None);
}

#[tokio::test]
async fn the_root_volume_is_encrypted() {
    let server =
        Loopback::replying([no_template(), image(), template("CreateLaunchTemplate", 1)]).await;
    compute(&server).set_up(&settings(&[])).await.unwrap();
    models::check(&server.asked());
    let (created, volume) = (&server.asked()[2], "LaunchTemplateData.BlockDeviceMapping.1");
    assert_eq!(created.param(&format!("{volume}.DeviceName")), "/dev/xvda");
    assert_eq!(created.param(&format!("{volume}.Ebs.Encrypted")), "true");
    assert_eq!(created.param(&format!("{volume}.Ebs.VolumeSize")), "", "that of the image");
    assert_eq!(created.param(&format!("{volume}.Ebs.VolumeType")), "", "that of the image");
}

#[tokio::test]
async fn an_image_without_an_agent_of_its_architecture_is_refused() {
    let sha = "a".repeat(64);
    let x86 = [("agent-url", "https://example.com/ondeck"), ("agent-sha256", sha.as_str())];
    let server = Loopback::replying([no_template(), image_for("arm64")]).await;
    let failed = compute(&server).set_up(&settings(&x86)).await.unwrap_err();
    assert!(matches!(&failed, PortError::Setting(setting) if setting.name == "ami"), "{failed}");
    let said = failed.to_string();
    assert!(said.contains("set agent-url-arm64 and agent-sha256-arm64"), "{said}");

    let arm =
        [("agent-url-arm64", "https://example.com/arm"), ("agent-sha256-arm64", sha.as_str())];
    let both = settings(&[x86, arm].concat());
    for architecture in ["x86_64", "arm64"] {
        let created = template("CreateLaunchTemplate", 1);
        let server = Loopback::replying([no_template(), image_for(architecture), created]).await;
        compute(&server).set_up(&both).await.unwrap();
    }
}

#[tokio::test]
async fn an_image_behind_a_parameter_is_described_before_the_template_is_made() {
    let replies = [parameter("ami-1"), image(), no_template(), template("CreateLaunchTemplate", 1)];
    let server = Loopback::replying(replies).await;
    let settings = settings(&[ALIAS, ("volume-size-gb", "40")]);
    let settings = looked_up(&server, &settings).await.unwrap();
    let stored = compute(&server).set_up(&settings).await.unwrap();
    assert_eq!(stored[DEVICE_SETTING], "/dev/xvda");
    let [asked, described, found, created] = server.asked().try_into().unwrap();
    assert_eq!(asked.header("x-amz-target"), "AmazonSSM.GetParameters");
    assert_eq!(asked.body, r#"{"Names":["/images/ci"]}"#);
    assert_eq!(described.param("ImageId.1"), "ami-1");
    assert_eq!(created.param("LaunchTemplateData.ImageId"), ALIAS.1, "EC2 reads it at each launch");
    assert_eq!(created.param(&format!("{VOLUME}.DeviceName")), "/dev/xvda");
    assert_eq!(created.param(&format!("{VOLUME}.Ebs.Encrypted")), "true");
    assert_eq!(created.param(&format!("{VOLUME}.Ebs.VolumeSize")), "40");
    models::check(&[described, found, created.clone()]);

    // The next refresh finds the version without asking for the image.
    let description = created.param("VersionDescription");
    let server = Loopback::replying([versions(&[version(1, &description, true)])]).await;
    compute(&server).set_up(&settings).await.unwrap();
    assert_eq!(server.actions(), ["DescribeLaunchTemplateVersions"]);
}

#[tokio::test]
async fn another_root_device_behind_a_parameter_makes_another_version() {
    let known = settings(&[ALIAS, (DEVICE_SETTING, "/dev/xvda")]);
    let server = Loopback::replying([no_template(), template("CreateLaunchTemplate", 1)]).await;
    set_up(&server, &known).await;
    let first = server.asked()[1].param("VersionDescription");
    let server = Loopback::replying([versions(&[version(1, &first, true)]), added(2)]).await;
    let moved = settings(&[ALIAS, (DEVICE_SETTING, "/dev/sda1")]);
    assert_eq!(set_up(&server, &moved).await, "2");
    assert_eq!(server.asked()[1].param(&format!("{VOLUME}.DeviceName")), "/dev/sda1");
}

#[tokio::test]
async fn settings_of_an_earlier_version_have_their_parameter_looked_up() {
    let replies = [parameter("ami-1"), image(), no_template(), template("CreateLaunchTemplate", 1)];
    let server = Loopback::replying(replies).await;
    let stored = compute(&server).set_up(&settings(&[ALIAS])).await.unwrap();
    assert_eq!(stored[DEVICE_SETTING], "/dev/xvda");
    // An image that is given by its id has no device of its own in the settings.
    let by_id = settings(&[(DEVICE_SETTING, "/dev/sda1")]);
    let server =
        Loopback::replying([no_template(), image(), template("CreateLaunchTemplate", 1)]).await;
    let stored = compute(&server).set_up(&by_id).await.unwrap();
    assert_eq!(stored[DEVICE_SETTING], "");
    assert_eq!(server.asked()[2].param(&format!("{VOLUME}.DeviceName")), "/dev/xvda");
}

#[tokio::test]
async fn a_parameter_that_leads_to_no_image_of_ours_is_refused() {
    let unknown = r#"{"Parameters":[],"InvalidParameters":["/images/ci"]}"#.to_owned();
    let sha = "a".repeat(64);
    let agent = [("agent-url", "https://example.com/ondeck"), ("agent-sha256", sha.as_str())];
    let settings = settings(&[&[ALIAS][..], &agent].concat());
    for (replies, problem) in [
        (vec![Reply::Say(200, unknown)], "names no parameter with the id of an image"),
        (vec![parameter("latest")], "names no parameter with the id of an image"),
        (vec![parameter("ami-1"), image_for("arm64")], "set agent-url-arm64"),
    ] {
        let server = Loopback::replying(replies).await;
        let failed = looked_up(&server, &settings).await.unwrap_err();
        assert!(matches!(&failed, PortError::Setting(named) if named.name == "ami"), "{failed}");
        assert!(failed.to_string().contains(problem), "{failed}");
        assert!(failed.to_string().contains(ALIAS.1), "{failed}");
    }
    let denied = Reply::Say(400, r#"{"__type":"AccessDeniedException"}"#.to_owned());
    let server = Loopback::replying([denied]).await;
    let failed = looked_up(&server, &settings).await.unwrap_err();
    let PortError::Unusable { reason, hint, .. } = &failed else { panic!("{failed}") };
    assert!(reason.contains("/images/ci cannot be read: 400 AccessDenied"), "{reason}");
    assert!(hint.contains("ssm:GetParameters"), "{hint}");
}
