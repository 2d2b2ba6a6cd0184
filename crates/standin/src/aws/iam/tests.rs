//! The evaluator against the rules and examples of the IAM User Guide. Each test names its page.

use serde_json::{Value, json};

use super::{Authorization, Context, Decision, Policy, decide};

fn context(keys: &[(&str, &[&str])]) -> Context {
    let mut context = Context::default();
    for (name, values) in keys {
        context.set_all(name, values.iter().map(|value| (*value).to_owned()));
    }
    context
}

fn statement(effect: &str, action: &str, resource: &str, condition: Value) -> Value {
    let mut statement = json!({ "Effect": effect, "Action": action, "Resource": resource });
    if !condition.is_null() {
        statement["Condition"] = condition;
    }
    statement
}

#[expect(clippy::needless_pass_by_value, reason = "tests write the value in place")]
fn policy(statements: Value) -> Policy {
    let policy = json!({ "Version": "2012-10-17", "Statement": statements });
    Policy::parse(&policy.to_string()).unwrap()
}

fn asked(action: &str, resource: &str, context: Context) -> Authorization {
    Authorization { action: action.to_owned(), resource: resource.to_owned(), context }
}

/// Whether a condition holds for a request with these keys.
fn holds(condition: Value, keys: &[(&str, &[&str])]) -> bool {
    let policy = policy(statement("Allow", "*", "*", condition));
    decide([&policy], &asked("a:b", "*", context(keys))) == Decision::Allowed
}

fn problem(policy: &Value) -> String {
    Policy::parse(&policy.to_string()).unwrap_err()
}

/// Page: "Policy evaluation logic" (how the enforcement code decides).
#[test]
fn an_explicit_deny_beats_an_allow_and_nothing_is_allowed_by_itself() {
    let allow = statement("Allow", "s3:*", "*", Value::Null);
    let mut deny = statement("Deny", "s3:DeleteObject", "arn:aws:s3:::logs/*", Value::Null);
    deny["Sid"] = "KeepLogs".into();
    let (allow, deny) = (policy(allow), policy(deny));
    let at = |action: &str, resource: &str| {
        decide([&allow, &deny], &asked(action, resource, Context::default()))
    };
    assert_eq!(at("s3:GetObject", "arn:aws:s3:::logs/a"), Decision::Allowed);
    let denied = Decision::ExplicitlyDenied("KeepLogs".to_owned());
    assert_eq!(at("s3:DeleteObject", "arn:aws:s3:::logs/a"), denied);
    assert_eq!(at("s3:DeleteObject", "arn:aws:s3:::other/a"), Decision::Allowed);
    assert_eq!(at("sqs:SendMessage", "*"), Decision::ImplicitlyDenied);
}

/// Page: "IAM JSON policy elements: Action" (wildcards; the prefix and the name ignore case).
#[test]
fn actions_have_wildcards_and_ignore_case() {
    for (pattern, action, is_match) in [
        ("iam:*AccessKey*", "iam:CreateAccessKey", true),
        ("iam:*AccessKey*", "iam:UpdateAccessKey", true),
        ("iam:*AccessKey*", "iam:CreateUser", false),
        ("IAM:listaccesskeys", "iam:ListAccessKeys", true),
        ("ec2:Describe?mages", "ec2:DescribeImages", true),
        ("ec2:*", "ec2:RunInstances", true),
        ("ec2:*", "ec2messages:GetMessages", false),
        ("*", "anything:Here", true),
    ] {
        let policy = policy(statement("Allow", pattern, "*", Value::Null));
        let decision = decide([&policy], &asked(action, "*", Context::default()));
        assert_eq!(decision == Decision::Allowed, is_match, "{pattern} {action}");
    }
}

/// Pages: "IAM JSON policy elements: NotAction" and "NotResource".
#[test]
fn what_is_excepted_is_not_covered() {
    let policy = policy(json!({
        "Effect": "Allow",
        "NotAction": "iam:*",
        "NotResource": ["arn:aws:s3:::private", "arn:aws:s3:::private/*"],
    }));
    let at = |action: &str, resource: &str| {
        decide([&policy], &asked(action, resource, Context::default())) == Decision::Allowed
    };
    assert!(at("s3:GetObject", "arn:aws:s3:::public/a"));
    assert!(!at("iam:GetUser", "arn:aws:iam::123456789012:user/a"));
    assert!(!at("s3:GetObject", "arn:aws:s3:::private/a"));
}

/// Page: "IAM JSON policy elements: Resource" (wildcards in ARN segments).
#[test]
fn resources_have_wildcards_within_segments() {
    const USER: &str = "arn:aws:iam::123456789012:user/accounting/anna";
    for (pattern, resource, is_match) in [
        ("arn:aws:iam::123456789012:user/accounting/*", USER, true),
        ("arn:aws:iam::123456789012:user/*", USER, true),
        ("arn:aws:iam::123456789012:*", USER, true),
        ("arn:aws:iam::*:user/accounting/ann?", USER, true),
        ("arn:aws:iam::1*9:user/*", USER, false),
        // A star in the middle of a segment stays within it.
        ("arn:aws:i*m::123456789012:user/*", USER, true),
        ("arn:a*m::123456789012:user/*", USER, false),
        // At the end of a segment it reaches over colons.
        ("arn:aws:*", USER, true),
        ("arn:*:user/accounting/anna", USER, true),
        ("arn:aws:iam::123456789012:USER/accounting/*", USER, false),
        ("*", USER, true),
        (
            "arn:aws:dynamodb:us-east-1:1:table/T",
            "arn:aws:dynamodb:us-east-1:1:table/T/index/I",
            false,
        ),
        (
            "arn:aws:dynamodb:us-east-1:1:table/T/*",
            "arn:aws:dynamodb:us-east-1:1:table/T/index/I",
            true,
        ),
    ] {
        let policy = policy(statement("Allow", "*", pattern, Value::Null));
        let decision = decide([&policy], &asked("a:b", resource, Context::default()));
        assert_eq!(decision == Decision::Allowed, is_match, "{pattern} {resource}");
    }
}

/// Page: "IAM JSON policy elements: Condition operators" (string condition operators).
#[test]
fn strings_are_compared_with_and_without_case_and_wildcards() {
    let job = |value: &'static str| [("aws:PrincipalTag/job-category", [value])];
    let check = |operator: &str, wanted: Value, value: &'static str| {
        let keys = job(value);
        let keys: Vec<(&str, &[&str])> = keys.iter().map(|(k, v)| (*k, v.as_slice())).collect();
        holds(json!({ operator: { "aws:PrincipalTag/job-category": wanted } }), &keys)
    };
    assert!(check("StringEquals", json!("iamuser-admin"), "iamuser-admin"));
    assert!(!check("StringEquals", json!("iamuser-admin"), "IAMuser-admin"));
    assert!(!check("StringEquals", json!("iamuser-*"), "iamuser-admin"), "not a wildcard here");
    assert!(check("StringEqualsIgnoreCase", json!("iamuser-admin"), "IAMUser-Admin"));
    assert!(check("StringLike", json!("iamuser-*"), "iamuser-admin"));
    assert!(check("StringLike", json!("iamuser-?dmin"), "iamuser-admin"));
    assert!(!check("StringLike", json!("IAMuser-*"), "iamuser-admin"));
    assert!(check("StringNotLike", json!("iamuser-*"), "guest"));
    // Several values: one has to match; with a negated operator, none may.
    assert!(check("StringEquals", json!(["a", "b"]), "b"));
    assert!(!check("StringNotEquals", json!(["a", "b"]), "b"));
    assert!(check("StringNotEquals", json!(["a", "b"]), "c"));
}

/// Page: "IAM JSON policy elements: Condition operators" (a key that is not in the request).
#[test]
fn an_absent_key_matches_negated_operators_only() {
    let of = |operator: &str| json!({ operator: { "ec2:InstanceType": "t1.micro" } });
    for operator in ["StringEquals", "StringLike", "StringEqualsIgnoreCase", "ArnLike"] {
        assert!(!holds(of(operator), &[]), "{operator}");
        assert!(holds(of(&format!("{operator}IfExists")), &[]), "{operator}IfExists");
    }
    for operator in ["StringNotEquals", "StringNotLike", "ArnNotLike", "ArnNotEquals"] {
        assert!(holds(of(operator), &[]), "{operator}");
    }
    assert!(!holds(json!({ "Bool": { "aws:SecureTransport": "true" } }), &[]));
    assert!(!holds(json!({ "NumericLessThan": { "ec2:VolumeSize": "10" } }), &[]));
}

/// Page: "IAM JSON policy elements: Condition operators" (…IfExists, with the example of instance
/// types, and Null).
#[test]
fn if_exists_and_null_look_at_whether_a_key_is_there() {
    let types = json!({ "StringLikeIfExists": { "ec2:InstanceType": ["t1.*", "t2.*", "m3.*"] } });
    assert!(holds(types.clone(), &[("ec2:InstanceType", &["t1.micro"])]));
    assert!(!holds(types.clone(), &[("ec2:InstanceType", &["m2.micro"])]));
    assert!(holds(types, &[]));
    let null = |wanted: Value| json!({ "Null": { "aws:TokenIssueTime": wanted } });
    assert!(holds(null(json!("true")), &[]));
    assert!(!holds(null(json!(true)), &[("aws:TokenIssueTime", &["now"])]));
    assert!(holds(null(json!(false)), &[("aws:TokenIssueTime", &["now"])]));
    assert!(!holds(null(json!("false")), &[]));
}

/// Page: "IAM JSON policy elements: Condition operators" (ARN, numeric and Boolean operators).
#[test]
fn arns_numbers_and_truth_values_are_compared_as_such() {
    let topic = |operator: &str, pattern: &str, arn: &str| {
        holds(json!({ operator: { "aws:SourceArn": pattern } }), &[("aws:SourceArn", &[arn])])
    };
    const TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:TOPIC-ID";
    for operator in ["ArnEquals", "ArnLike"] {
        assert!(topic(operator, "arn:aws:sns:us-east-1:123456789012:TOPIC-*", TOPIC));
        assert!(topic(operator, "arn:aws:sns:*:123456789012:TOPIC-ID", TOPIC));
        // Each of the six parts is compared by itself.
        assert!(!topic(operator, "arn:aws:sns:*:TOPIC-ID", TOPIC));
        assert!(!topic(operator, "*", TOPIC));
        assert!(!topic(operator, "arn:aws:sns:us-east-1:123456789012:*", "TOPIC-ID"));
    }
    assert!(topic("ArnNotLike", "arn:aws:sns:*:123456789012:OTHER", TOPIC));
    let number = |operator: &str, limit: Value, value: &'static str| {
        holds(json!({ operator: { "s3:max-keys": limit } }), &[("s3:max-keys", &[value])])
    };
    assert!(number("NumericLessThanEquals", json!("10"), "10"));
    assert!(!number("NumericLessThanEquals", json!(10), "11"));
    assert!(number("NumericGreaterThan", json!("9"), "10"), "not as texts");
    assert!(number("NumericNotEquals", json!("9"), "10"));
    let secure = |wanted: Value, is: &'static str| {
        holds(
            json!({ "Bool": { "aws:SecureTransport": wanted } }),
            &[("aws:SecureTransport", &[is])],
        )
    };
    assert!(secure(json!("true"), "true") && secure(json!(false), "false"));
    assert!(!secure(json!("true"), "false"));
}

/// Page: "Multivalued context key examples" (ForAllValues with `aws:TagKeys`, and Null beside it).
#[test]
fn for_all_values_needs_every_value_and_holds_for_none() {
    let keys = |values: &'static [&'static str]| [("aws:TagKeys", values)];
    let all = json!({ "ForAllValues:StringLike": { "aws:TagKeys": "key1*" } });
    assert!(holds(all.clone(), &keys(&["key1"])));
    assert!(holds(all.clone(), &keys(&["key1:legal", "key1:hr"])));
    assert!(!holds(all.clone(), &keys(&["key1:hr", "key2:audit"])));
    assert!(!holds(all.clone(), &keys(&["key2:audit"])));
    assert!(holds(all, &[]), "a request without the key satisfies ForAllValues");
    let there = json!({
        "ForAllValues:StringLike": { "aws:TagKeys": ["key1*", "key2*"] },
        "Null": { "aws:TagKeys": "false" },
    });
    assert!(holds(there.clone(), &keys(&["key1:hr", "key2:audit"])));
    assert!(!holds(there.clone(), &keys(&["key1:hr", "key3:it"])));
    assert!(!holds(there, &[]));
    let none = json!({ "ForAllValues:StringNotEquals": { "aws:TagKeys": ["a", "b"] } });
    assert!(holds(none.clone(), &keys(&["c", "d"])));
    assert!(!holds(none, &keys(&["c", "a"])));
}

/// Page: "Multivalued context key examples" (ForAnyValue with `aws:TagKeys`).
#[test]
fn for_any_value_needs_one_value() {
    let keys = |values: &'static [&'static str]| [("aws:TagKeys", values)];
    let any =
        json!({ "ForAnyValue:StringEquals": { "aws:TagKeys": ["environment", "webserver"] } });
    assert!(holds(any.clone(), &keys(&["webserver", "team"])));
    assert!(!holds(any.clone(), &keys(&["team", "costcenter"])));
    assert!(!holds(any, &[]), "a request without the key has no such value");
    let other = json!({ "ForAnyValue:StringNotEquals": { "aws:TagKeys": ["a", "b"] } });
    assert!(holds(other.clone(), &keys(&["a", "c"])));
    assert!(!holds(other.clone(), &keys(&["a", "b"])));
    assert!(!holds(other, &[]));
    let if_exists = json!({ "ForAnyValue:StringEqualsIfExists": { "aws:TagKeys": "a" } });
    assert!(holds(if_exists.clone(), &[]));
    assert!(!holds(if_exists, &keys(&["b"])));
}

/// Page: "Conditions with multiple context keys or values" (all operators and keys have to hold).
#[test]
fn all_conditions_of_a_statement_have_to_hold() {
    let both = json!({
        "StringEquals": { "aws:PrincipalTag/department": ["finance", "hr"], "aws:PrincipalTag/role": "audit" },
        "ArnLike": { "aws:PrincipalArn": "arn:aws:iam::222222222222:user/Ana" },
    });
    let ana: (&str, &[&str]) = ("aws:PrincipalArn", &["arn:aws:iam::222222222222:user/Ana"]);
    let audit: (&str, &[&str]) = ("aws:PrincipalTag/role", &["audit"]);
    assert!(holds(both.clone(), &[ana, audit, ("aws:PrincipalTag/department", &["hr"])]));
    assert!(!holds(both.clone(), &[ana, audit, ("aws:PrincipalTag/department", &["it"])]));
    assert!(!holds(both.clone(), &[ana, audit]));
    assert!(!holds(both, &[audit, ("aws:PrincipalTag/department", &["hr"])]));
}

/// Page: "IAM JSON policy elements: Condition" (the names of keys ignore case).
#[test]
fn the_names_of_keys_ignore_case() {
    let sensitive = json!({ "StringEquals": { "AWS:requesttag/Team": "yellow" } });
    assert!(holds(sensitive.clone(), &[("aws:RequestTag/team", &["yellow"])]));
    assert!(!holds(sensitive, &[("aws:RequestTag/team", &["Yellow"])]));
}

/// Page: "IAM policy elements: Variables and tags".
#[test]
fn variables_stand_for_keys_of_the_request() {
    let bucket = policy(statement(
        "Allow",
        "s3:GetObject",
        "arn:aws:s3:::home/${aws:username}/*",
        Value::Null,
    ));
    let at = |user: &[(&str, &[&str])], path: &str| {
        let asked = asked("s3:GetObject", &format!("arn:aws:s3:::home/{path}"), context(user));
        decide([&bucket], &asked) == Decision::Allowed
    };
    assert!(at(&[("aws:username", &["Jane"])], "Jane/a"));
    assert!(!at(&[("aws:username", &["Jane"])], "John/a"));
    // A value is no pattern, and a variable without a value matches nothing, also not nothing.
    assert!(!at(&[("aws:username", &["*"])], "John/a"));
    assert!(at(&[("aws:username", &["*"])], "*/a"));
    assert!(!at(&[], "/a") && !at(&[], "Jane/a") && !at(&[], "${aws:username}/a"));

    let keys = json!({ "ForAllValues:StringEquals": { "dynamodb:LeadingKeys": "AGENT#${ec2:SourceInstanceARN}" } });
    let arn = "arn:aws:ec2:us-east-1:123456789012:instance/i-1";
    let own = format!("AGENT#{arn}");
    let as_machine = |key: &str| {
        holds(keys.clone(), &[("ec2:SourceInstanceARN", &[arn]), ("dynamodb:LeadingKeys", &[key])])
    };
    assert!(as_machine(&own));
    assert!(!as_machine("AGENT#arn:aws:ec2:us-east-1:123456789012:instance/i-2"));
    assert!(!holds(keys, &[("dynamodb:LeadingKeys", &["AGENT#"])]));
}

/// Page: "IAM policy elements: Variables and tags" (default values, and special characters).
#[test]
fn variables_have_defaults_and_escapes() {
    let team = |written: &str, keys: &[(&str, &[&str])]| {
        holds(json!({ "StringLike": { "s3:prefix": written } }), keys)
    };
    let prefix =
        |value: &'static str| -> (&'static str, Vec<&'static str>) { ("s3:prefix", vec![value]) };
    let with = |value: &'static str, written: &str, tag: Option<&str>| {
        let (name, values) = prefix(value);
        match tag {
            Some(tag) => team(written, &[(name, &values), ("aws:PrincipalTag/team", &[tag])]),
            None => team(written, &[(name, &values)]),
        }
    };
    let default = "bucket-${aws:PrincipalTag/team, 'company-wide'}";
    assert!(with("bucket-yellow", default, Some("yellow")));
    assert!(with("bucket-company-wide", default, None));
    assert!(!with("bucket-company-wide", default, Some("yellow")));
    assert!(with("a*b", "a${*}b", None) && !with("axb", "a${*}b", None));
    assert!(with("a?b", "a${?}b", None) && !with("axb", "a${?}b", None));
    assert!(with("a$b", "a${$}b", None) && with("a$b", "a$b", None));
}

#[test]
fn what_is_not_known_exactly_is_an_error() {
    let with = |statement: Value| json!({ "Version": "2012-10-17", "Statement": statement });
    let condition = |condition: Value| with(statement("Allow", "*", "*", condition));
    let plain = || statement("Allow", "*", "*", Value::Null);
    let changed = |name: &str, value: Value| {
        let mut statement = plain();
        statement[name] = value;
        with(statement)
    };
    for (policy, expected) in [
        (json!({ "Statement": plain() }), "Version"),
        (json!({ "Version": "2008-10-17", "Statement": plain() }), "Version"),
        (json!({ "Version": "2012-10-17" }), "without a Statement"),
        (changed("Principal", json!("*")), "unknown element: Principal"),
        (changed("Effect", json!("allow")), "Effect"),
        (changed("NotAction", json!("a:b")), "either Action or NotAction"),
        (changed("Resource", json!([])), "Resource"),
        (condition(json!({ "DateLessThan": { "aws:CurrentTime": "2026-01-01" } })), "DateLessThan"),
        (
            condition(json!({ "ForSomeValues:StringEquals": { "aws:TagKeys": "a" } })),
            "unknown operator",
        ),
        (condition(json!({ "ForAllValues:Null": { "aws:TagKeys": "true" } })), "unknown operator"),
        (
            condition(json!({ "StringEquals": { "dynamodb:LeadingKeys": "a" } })),
            "needs a set operator",
        ),
        (condition(json!({ "ForAllValues:StringEquals": { "aws:userid": "a" } })), "cannot have"),
        (condition(json!({ "Null": { "a:b": "maybe" } })), "not a value"),
        (condition(json!({ "NumericEquals": { "a:b": "ten" } })), "not a value"),
        (condition(json!({ "StringEquals": { "a:b": "${open" } })), "not closed"),
        (condition(json!({ "StringEquals": { "a:b": "${}" } })), "not a variable"),
        (condition(json!({ "StringEquals": { "a:b": "${a:c, none}" } })), "not a variable"),
        (condition(json!({ "StringNotEquals": { "a:b": "${a:c}" } })), "not supported"),
        (with(statement("Deny", "*", "arn:aws:s3:::${a:b}", Value::Null)), "not supported"),
        (with(statement("Allow", "s3:${a:b}", "*", Value::Null)), "Action cannot"),
    ] {
        let problem = problem(&policy);
        assert!(problem.contains(expected), "{problem}: {policy}");
    }
}
