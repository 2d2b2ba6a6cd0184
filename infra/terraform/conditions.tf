locals {
  has_ids                  = var.repository_with_ids != ""
  has_workflow_environment = var.workflow_environment != ""
  admits_pull_requests     = var.pull_requests && var.workflow_environment == ""
  new_oidc_provider        = var.oidc_provider == "new"
  new_spot_role            = var.spot_role == "new"
  new_network              = var.vpc_id == ""
  third_zone               = local.new_network && var.zones == 3
  public_machines          = local.new_network && !var.nat
  private_machines         = local.new_network && var.nat
  new_endpoint             = local.new_network || length(var.route_table_ids) > 0
  uses_volume_key          = var.volume_key != "none"
  new_volume_key           = var.volume_key == "new"
  uses_image_parameter     = var.image_parameter != ""
  copies_logs              = var.log_group != ""

  pool           = var.trust_level == "" ? var.pool : "${var.pool}@${var.trust_level}"
  boundary       = var.permissions_boundary == "" ? null : var.permissions_boundary
  vpc_id         = local.new_network ? one(aws_vpc.vpc[*].id) : var.vpc_id
  volume_key_arn = local.new_volume_key ? one(aws_kms_key.volume_encryption_key[*].arn) : var.volume_key

  subnet_ids = local.new_network ? concat(
    aws_subnet.machine_subnet_a[*].id,
    aws_subnet.machine_subnet_b[*].id,
    aws_subnet.machine_subnet_c[*].id,
  ) : var.subnet_ids

  spot_role_arn = "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
}
