//! The help of the command that replays a history.

use insta::assert_snapshot;

use super::help;

#[test]
fn the_help_of_simulate() {
    assert_snapshot!(help("simulate"), @r#"
    Replay a history of runs, show what waiting costs, and recommend settings

    Usage: ondeck simulate [OPTIONS]

    Options:
          --since <TIME>                 Beginning of the account, or of the runs of --from-github: a
                                         span such as 7d or 12h, a date (midnight in UTC), or a time in
                                         RFC 3339 [default: 7d]
          --prices <FILE>                File with prices, in place of the table of the program
          --plot <DIR>                   Directory in which to write a plot, of the days or of what
                                         waiting costs, for light and for dark pages: cost-light.svg or
                                         simulate-light.svg, and -dark.svg
          --history <FILE>               CSV file with the runs: start,machines,minutes[,class]
          --generate <SEED>              In place of a file: a week of runs that follow from this number
          --from-github                  In place of a file: the runs of --repository since --since, as
                                         GitHub's API has them
          --print-history                Print the runs as CSV, and simulate nothing
          --idle-times-min <MIN ...>     The idle times to try, in minutes [default: 5 15 30 60]
          --min-idle-counts <COUNT ...>  The minimums to try: idle machines of each class of the history
                                         [default: 0 1 2]
          --min-idle-window <WINDOW>     When the minimum holds, as in min-idle: "Mon-Fri 08:00-18:00
                                         Europe/Berlin" [default: always]
          --usage-classes <CLASS ...>    The purchase options to try: on-demand, spot [default:
                                         on-demand spot]
          --boot-sec <SEC>               How long a new machine takes until its runner is registered; at
                                         most 150 [default: 45]
          --registration-sec <SEC>       How long an idle machine takes to register its runner; at most
                                         15 [default: 5]
          --refresh-every-min <MIN>      Time between two refreshes [default: 5]
          --spot-interruptions <COUNT>   How many spot machines are interrupted in a thousand hours of
                                         one; their runs begin again [default: 0]
          --aim-percent <PERCENT>        How much of the waiting that the best settings spare the
                                         recommended ones must spare [default: 80]
      -h, --help                         Print help

    GitHub:
          --github-token <TOKEN>     Token that may register runners; prefer the variable, because other
                                     users can see a command line
          --jobs-token <TOKEN>       Token that may read workflow runs, for rescue [default: the token
                                     that registers runners]
          --github-url <URL>         Address of GitHub; set it for an Enterprise Server [default:
                                     GITHUB_SERVER_URL, or https://github.com]
          --repository <OWNER/NAME>  Repository that runners serve [default: GITHUB_REPOSITORY, or the
                                     pool; for init the remote origin]

    (options of every command)

    Plays the runs through provision, release and refresh as they are, on virtual time, once for
    each combination of idle time, minimum and purchase option. Connects to no pool and launches
    nothing. Recommended is the cheapest point that spares enough of the waiting. A history is CSV:
    the header start,machines,minutes[,class], then a line for each run, its start in RFC 3339, UTC.

    Examples:
      ondeck simulate --history examples/histories/nightly.csv
      ondeck simulate --generate 1 --print-history > week.csv
      ondeck simulate --history week.csv --idle-times-min '10 30' --usage-classes spot --json
      ondeck simulate --from-github --repository acme/web --since 14d --plot docs/images
    "#);
}
