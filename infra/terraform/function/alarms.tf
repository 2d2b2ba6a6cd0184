resource "aws_cloudwatch_metric_alarm" "refresh_overdue" {
  alarm_name          = "${var.prefix}-refresh-overdue"
  alarm_description   = "No refresh has succeeded for 10 minutes"
  namespace           = "ondeck"
  metric_name         = "RefreshSucceeded"
  dimensions          = { Pool = local.pool }
  statistic           = "Sum"
  period              = 600
  evaluation_periods  = 1
  comparison_operator = "LessThanThreshold"
  threshold           = 1
  treat_missing_data  = "breaching"
  alarm_actions       = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "refresh_fails" {
  alarm_name          = "${var.prefix}-refresh-fails"
  alarm_description   = "Three of the last five calls of the function have failed"
  namespace           = "AWS/Lambda"
  metric_name         = "Errors"
  dimensions          = { FunctionName = aws_lambda_function.refresh_function.function_name }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 3
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "orphan_stays" {
  alarm_name          = "${var.prefix}-orphan-stays"
  alarm_description   = "A machine without a record has not been terminated for 15 minutes"
  namespace           = "ondeck"
  metric_name         = "OldestOrphanAge"
  dimensions          = { Pool = local.pool }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  comparison_operator = "GreaterThanThreshold"
  threshold           = 900
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
}

resource "aws_cloudwatch_metric_alarm" "too_many_machines" {
  count               = local.has_machines_alarm ? 1 : 0
  alarm_name          = "${var.prefix}-too-many-machines"
  alarm_description   = "The pool has had more machines than expected for 10 minutes"
  namespace           = "ondeck"
  metric_name         = "Machines"
  dimensions          = { Pool = local.pool }
  statistic           = "Minimum"
  period              = 300
  evaluation_periods  = 2
  comparison_operator = "GreaterThanThreshold"
  threshold           = var.machines_alarm
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm_actions
}

# The tag counts from the day on which it is activated as a cost allocation tag.
resource "aws_budgets_budget" "budget" {
  count        = local.has_budget ? 1 : 0
  name         = "${var.prefix}-machines"
  budget_type  = "COST"
  time_unit    = "MONTHLY"
  limit_amount = tostring(var.monthly_budget)
  limit_unit   = "USD"

  cost_filter {
    name   = "TagKeyValue"
    values = [join("$", ["user:ondeck:pool", local.pool])]
  }

  notification {
    notification_type          = "ACTUAL"
    comparison_operator        = "GREATER_THAN"
    threshold                  = 100
    threshold_type             = "PERCENTAGE"
    subscriber_email_addresses = local.budget_emails
    subscriber_sns_topic_arns  = local.alarm_actions
  }

  notification {
    notification_type          = "FORECASTED"
    comparison_operator        = "GREATER_THAN"
    threshold                  = 100
    threshold_type             = "PERCENTAGE"
    subscriber_email_addresses = local.budget_emails
    subscriber_sns_topic_arns  = local.alarm_actions
  }
}
