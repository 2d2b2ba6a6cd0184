resource "aws_cloudwatch_log_group" "function_log" {
  name              = "/aws/lambda/${var.prefix}-function"
  retention_in_days = 30
}

resource "aws_lambda_function" "refresh_function" {
  function_name                  = local.function_name
  description                    = "Refreshes the pool"
  runtime                        = "provided.al2023"
  handler                        = "bootstrap"
  architectures                  = [var.architecture]
  s3_bucket                      = var.code_bucket
  s3_key                         = var.code_key
  role                           = aws_iam_role.function_role.arn
  timeout                        = 60
  memory_size                    = 256
  reserved_concurrent_executions = local.reserves_concurrency ? var.reserved_concurrency : null

  environment {
    variables = {
      ONDECK_BACKEND               = "aws"
      ONDECK_POOL                  = var.pool
      ONDECK_TRUST                 = var.trust_level
      ONDECK_REPOSITORY            = var.repository
      ONDECK_GITHUB_APP_ID         = var.app_id
      ONDECK_GITHUB_APP_KEY_SOURCE = var.key_source
      ONDECK_NOTICE_WEBHOOK_SOURCE = var.webhook_source
      ONDECK_AMI                   = var.ami
      ONDECK_SUBNET_IDS            = var.subnet_ids
      ONDECK_SECURITY_GROUP_IDS    = var.security_group_ids
      ONDECK_IAM_INSTANCE_PROFILE  = var.iam_instance_profile
      ONDECK_MIN_IDLE              = var.min_idle
    }
  }

  depends_on = [
    aws_cloudwatch_log_group.function_log,
    aws_iam_role_policy.refresh_policy,
    aws_iam_role_policy.function_policy,
  ]
}

# The next minute is the retry.
resource "aws_lambda_function_event_invoke_config" "no_retries" {
  function_name                = aws_lambda_function.refresh_function.function_name
  qualifier                    = "$LATEST"
  maximum_retry_attempts       = 0
  maximum_event_age_in_seconds = 60
}

resource "aws_scheduler_schedule" "schedule" {
  name                = "${var.prefix}-refresh"
  description         = "Refreshes the pool each minute"
  schedule_expression = "rate(1 minute)"

  flexible_time_window {
    mode = "OFF"
  }

  target {
    arn      = aws_lambda_function.refresh_function.arn
    role_arn = aws_iam_role.schedule_role.arn

    retry_policy {
      maximum_retry_attempts       = 0
      maximum_event_age_in_seconds = 60
    }
  }

  depends_on = [aws_iam_role_policy.schedule_policy]
}

resource "aws_cloudwatch_event_rule" "spot_warnings" {
  name        = "${var.prefix}-spot-warnings"
  description = "Refreshes the pool when EC2 takes a spot machine away"

  event_pattern = jsonencode({
    source        = ["aws.ec2"]
    "detail-type" = ["EC2 Spot Instance Interruption Warning"]
  })
}

resource "aws_cloudwatch_event_target" "spot_warnings_refresh" {
  rule      = aws_cloudwatch_event_rule.spot_warnings.name
  target_id = "refresh"
  arn       = aws_lambda_function.refresh_function.arn

  retry_policy {
    maximum_retry_attempts       = 0
    maximum_event_age_in_seconds = 60
  }
}

resource "aws_lambda_permission" "spot_warnings_may_call" {
  function_name = aws_lambda_function.refresh_function.function_name
  action        = "lambda:InvokeFunction"
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.spot_warnings.arn
}
