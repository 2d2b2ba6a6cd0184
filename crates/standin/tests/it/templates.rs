//! Launch templates of the stand-in's EC2.

use crate::harness::{Ec2, gateway, unique};

#[tokio::test]
async fn versions_are_made_listed_and_chosen() {
    let gateway = gateway();
    let ec2 = Ec2::at(&gateway.endpoint("control"));
    let name = unique("template");
    ec2.template(&name).await;
    let named = format!("LaunchTemplateName={name}");
    let again = format!("Action=CreateLaunchTemplate&{named}&LaunchTemplateData.ImageId=ami-1");
    let again = ec2.ask(&again).await;
    assert_eq!(again.code(), Some("InvalidLaunchTemplateName.AlreadyExistsException"));

    let versions = format!("Action=DescribeLaunchTemplateVersions&{named}");
    let one = ec2.ask(&format!("{versions}&LaunchTemplateVersion.1=%24Default")).await;
    assert_eq!(one.first("versionDescription"), Some("one"));
    assert_eq!(one.first("instanceMetadataTags"), Some("enabled"));
    assert_eq!(one.first("securityGroupIdSet"), Some("<item>sg-1</item>"));

    let query = format!(
        "Action=CreateLaunchTemplateVersion&{named}&VersionDescription=two\
         &LaunchTemplateData.ImageId=ami-2&ClientToken=digest"
    );
    let two = ec2.ask(&query).await;
    assert_eq!(
        (two.first("versionNumber"), two.first("defaultVersion")),
        (Some("2"), Some("false"))
    );
    assert_eq!(ec2.ask(&query).await.first("versionNumber"), Some("2"), "the token stands for it");
    let latest = ec2.ask(&format!("{versions}&LaunchTemplateVersion.1=%24Latest")).await;
    assert_eq!(latest.first("imageId"), Some("ami-2"));

    let query = format!("Action=ModifyLaunchTemplate&{named}&SetDefaultVersion=2");
    assert_eq!(ec2.ask(&query).await.first("defaultVersionNumber"), Some("2"));
    let default = ec2.ask(&format!("{versions}&LaunchTemplateVersion.1=%24Default")).await;
    assert_eq!(default.first("versionDescription"), Some("two"));
    let all = ec2.ask(&versions).await;
    assert_eq!(all.all("versionNumber"), ["2", "1"], "the newest first");

    let query = format!(
        "Action=DeleteLaunchTemplateVersions&{named}\
         &LaunchTemplateVersion.1=1&LaunchTemplateVersion.2=2"
    );
    let deleted = ec2.ask(&query).await;
    let kept = deleted.first("unsuccessfullyDeletedLaunchTemplateVersionSet").unwrap();
    assert!(kept.contains("<versionNumber>2</versionNumber>"), "the default one: {kept}");
    assert_eq!(ec2.ask(&versions).await.all("versionNumber"), ["2"]);
    gateway.assert_requests_valid();
}

#[tokio::test]
async fn a_template_that_is_gone_is_told_as_such() {
    let gateway = gateway();
    let ec2 = Ec2::at(&gateway.endpoint("control"));
    let name = unique("template");
    ec2.template(&name).await;
    let listed = ec2.ask("Action=DescribeLaunchTemplates").await;
    assert_eq!(listed.all("launchTemplateName"), [&*name]);
    gateway.ec2().delete_launch_template(&name);
    for action in ["DescribeLaunchTemplateVersions", "DeleteLaunchTemplate"] {
        let answer = ec2.ask(&format!("Action={action}&LaunchTemplateName={name}")).await;
        assert_eq!(answer.code(), Some("InvalidLaunchTemplateName.NotFoundException"));
    }
    let query = format!("Action=DescribeLaunchTemplates&LaunchTemplateName.1={name}");
    assert_eq!(ec2.ask(&query).await.code(), Some("InvalidLaunchTemplateName.NotFoundException"));
}

#[tokio::test]
async fn user_data_has_its_limit() {
    let gateway = gateway();
    let ec2 = Ec2::at(&gateway.endpoint("control"));
    let create = async |name: &str, data: String| {
        let query = format!(
            "Action=CreateLaunchTemplate&LaunchTemplateName={name}&LaunchTemplateData.UserData={data}"
        );
        ec2.ask(&query).await
    };
    // In base64, four characters encode three bytes.
    let fits = "AAAA".repeat(5_461);
    assert_eq!(create(&unique("template"), fits.clone()).await.status, 200);
    let more = create(&unique("template"), fits + "AAAA").await;
    assert_eq!(more.code(), Some("InvalidParameterValue"));
    let plain = create(&unique("template"), "%23!/bin/sh".to_owned()).await;
    assert_eq!(plain.code(), Some("InvalidUserData.Malformed"));
}
