locals {
  reserves_concurrency = var.reserved_concurrency != 0
  has_machines_alarm   = var.machines_alarm != 0
  has_budget           = var.monthly_budget != 0
  uses_image_parameter = var.image_parameter != ""
  uses_volume_key      = var.volume_key != "none"
  has_webhook          = var.webhook_arn != ""

  pool          = var.trust_level == "" ? var.pool : "${var.pool}@${var.trust_level}"
  boundary      = var.permissions_boundary == "" ? null : var.permissions_boundary
  alarm_actions = var.alarm_topic == "" ? null : [var.alarm_topic]
  budget_emails = var.budget_email == "" ? null : [var.budget_email]
  function_name = "${var.prefix}-function"
}
