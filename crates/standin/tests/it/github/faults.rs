//! The faults that a test injects into GitHub.

use std::time::{Duration, Instant};

use ondeck_standin::{
    GitHub, GitHubFault, GitHubFaultRule, GitHubOptions, GitHubRunner, Occurrence, Permission,
    RequestLimits,
};

use super::{Caller, REPOSITORY, RUNNERS, TOKEN, github};

#[tokio::test]
async fn limits_say_how_long_to_wait() {
    let github = github();
    let caller = Caller::new(&github, TOKEN);
    let retry_after = Duration::from_secs(7);
    let cases = [
        (GitHubFault::TooManyRequests { retry_after }, 429, "retry-after", "7"),
        (GitHubFault::SecondaryLimit { retry_after }, 403, "retry-after", "7"),
        (GitHubFault::PrimaryLimit { reset_in: retry_after }, 403, "x-ratelimit-remaining", "0"),
        (GitHubFault::Status(502), 502, "x-ratelimit-limit", "5000"),
    ];
    for (fault, status, header, value) in cases {
        let rule = github.inject(GitHubFaultRule::new(fault).occurrence(Occurrence::First(1)));
        let faulty = caller.ask(&format!("GET {RUNNERS}")).await;
        assert_eq!((faulty.status, faulty.header(header)), (status, value), "{fault:?}");
        assert_eq!(caller.ask(&format!("GET {RUNNERS}")).await.status, 200);
        assert_eq!((rule.matched(), rule.fired()), (2, 1));
        github.clear_faults();
    }
}

#[tokio::test]
async fn a_caller_that_exceeds_a_rate_limit_is_refused_until_it_resets() {
    let limits = RequestLimits { requests: 12, points: 11, ..RequestLimits::default() };
    let github = GitHub::start(GitHubOptions { limits, ..GitHubOptions::default() });
    github.allow(TOKEN, REPOSITORY, &[Permission::Administration]);
    let caller = Caller::new(&github, TOKEN);
    let ask = async |what: &str, status: u16| {
        let answer = caller.ask(what).await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        answer
    };
    let (list, mint) = (format!("GET {RUNNERS}"), format!("POST {RUNNERS}/registration-token"));
    for _ in 0..2 {
        ask(&mint, 201).await;
    }
    let refused = ask(&mint, 403).await;
    assert!(refused.message().starts_with("You have exceeded a secondary rate limit"));
    let wait: u64 = refused.header("retry-after").parse().unwrap();
    assert!((50..=60).contains(&wait), "{wait}");
    assert_eq!(refused.header("x-ratelimit-remaining"), "10", "what is refused does not count");
    assert_eq!(ask(&list, 200).await.header("x-ratelimit-remaining"), "9");
    github.advance(Duration::from_secs(wait));
    for left in (0..9).rev() {
        let answer = ask(&list, 200).await;
        assert_eq!(answer.header("x-ratelimit-remaining"), left.to_string());
        assert_eq!(answer.header("x-ratelimit-limit"), "12");
    }
    let refused = ask(&list, 403).await;
    assert!(refused.message().starts_with("API rate limit exceeded"), "{refused:?}");
    assert_eq!((refused.header("x-ratelimit-remaining"), refused.header("retry-after")), ("0", ""));
    assert!(refused.header("x-ratelimit-reset").parse::<u64>().is_ok());
    github.advance(Duration::from_secs(3_600));
    ask(&list, 200).await;
}

#[tokio::test]
async fn what_is_reset_has_not_happened_and_what_is_lost_has() {
    let github = github();
    let caller = Caller::new(&github, TOKEN);
    let cases = [
        (GitHubFault::Reset, false, false),
        (GitHubFault::LostAnswer, false, true),
        (GitHubFault::NotJson, true, false),
        (GitHubFault::Status(500), true, false),
    ];
    for (fault, answers, happens) in cases {
        let id = github.add_runner(GitHubRunner::new(REPOSITORY, "a"));
        let rule = GitHubFaultRule::new(fault).on("DELETE", "/repos/*/*/actions/runners/*");
        github.inject(rule);
        let answered = caller.try_ask(&format!("DELETE {RUNNERS}/{id}"), "").await;
        assert_eq!(answered.is_ok(), answers, "{fault:?}");
        assert_eq!(github.runners().is_empty(), happens, "{fault:?}");
        github.remove_runner("a");
        github.clear_faults();
    }
    let faults: Vec<_> = github.requests().into_iter().map(|it| (it.status, it.fault)).collect();
    assert_eq!(faults[0], (None, Some(GitHubFault::Reset)));
    assert_eq!(faults[3], (Some(500), Some(GitHubFault::Status(500))));
}

#[tokio::test]
async fn an_answer_can_be_cut_short_or_late() {
    let github = github();
    let caller = Caller::new(&github, TOKEN);
    let cut =
        github.inject(GitHubFaultRule::new(GitHubFault::CutBody).occurrence(Occurrence::First(1)));
    caller.try_ask(&format!("GET {RUNNERS}"), "").await.expect_err("only half of it comes");
    assert_eq!(cut.fired(), 1);
    let late = Duration::from_millis(300);
    github.inject(GitHubFaultRule::new(GitHubFault::Delay(late)));
    let begun = Instant::now();
    assert_eq!(caller.ask(&format!("GET {RUNNERS}")).await.status, 200);
    assert!(begun.elapsed() >= late);
}

#[tokio::test]
async fn a_caller_that_gives_up_is_logged_without_an_answer() {
    let github = github();
    github.inject(GitHubFaultRule::new(GitHubFault::Hang));
    let caller = Caller::new(&github, TOKEN);
    let request = format!("GET {RUNNERS}");
    let asked = tokio::time::timeout(Duration::from_millis(300), caller.ask(&request)).await;
    assert!(asked.is_err());
    drop(caller);
    let deadline = Instant::now() + Duration::from_secs(20);
    while github.requests().is_empty() {
        assert!(Instant::now() < deadline, "the request is not over");
        tokio::task::yield_now().await;
    }
    assert_eq!(github.requests()[0].status, None);
}
