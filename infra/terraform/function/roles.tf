resource "aws_iam_role" "function_role" {
  name                 = "${var.prefix}-function"
  description          = "Refreshes the pool as a function"
  permissions_boundary = local.boundary

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect    = "Allow"
        Principal = { Service = "lambda.amazonaws.com" }
        Action    = "sts:AssumeRole"
      },
    ]
  })
}

resource "aws_iam_role_policy" "refresh_policy" {
  name   = "refresh"
  role   = aws_iam_role.function_role.name
  policy = local.policy_refresh
}

resource "aws_iam_role_policy" "function_policy" {
  name   = "function"
  role   = aws_iam_role.function_role.name
  policy = local.policy_function
}

resource "aws_iam_role_policy" "image_parameter_policy" {
  count  = local.uses_image_parameter ? 1 : 0
  name   = "image-parameter"
  role   = aws_iam_role.function_role.name
  policy = local.policy_image_parameter
}

resource "aws_iam_role_policy" "volume_key_policy" {
  count  = local.uses_volume_key ? 1 : 0
  name   = "volume-key"
  role   = aws_iam_role.function_role.name
  policy = local.policy_volume_key
}

resource "aws_iam_role_policy" "notice_webhook_policy" {
  count  = local.has_webhook ? 1 : 0
  name   = "notice-webhook"
  role   = aws_iam_role.function_role.name
  policy = local.policy_notice_webhook
}

resource "aws_iam_role" "schedule_role" {
  name                 = "${var.prefix}-schedule"
  description          = "Calls the function that refreshes the pool"
  permissions_boundary = local.boundary

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect    = "Allow"
        Principal = { Service = "scheduler.amazonaws.com" }
        Action    = "sts:AssumeRole"
        Condition = {
          StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.current.account_id }
        }
      },
    ]
  })
}

resource "aws_iam_role_policy" "schedule_policy" {
  name = "call"
  role = aws_iam_role.schedule_role.name

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect   = "Allow"
        Action   = "lambda:InvokeFunction"
        Resource = aws_lambda_function.refresh_function.arn
      },
    ]
  })
}
