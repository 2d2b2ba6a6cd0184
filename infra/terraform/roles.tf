resource "aws_iam_openid_connect_provider" "git_hub_oidc_provider" {
  count          = local.new_oidc_provider ? 1 : 0
  url            = "https://${local.issuer}"
  client_id_list = ["sts.amazonaws.com"]
}

resource "aws_iam_service_linked_role" "spot_service_role" {
  count            = local.new_spot_role ? 1 : 0
  aws_service_name = "spot.amazonaws.com"
}

resource "aws_iam_role" "refresh_role" {
  name                 = "${var.prefix}-refresh"
  description          = "Calls ondeck refresh"
  permissions_boundary = local.boundary
  assume_role_policy   = local.trust_maintenance
}

resource "aws_iam_role" "operator_role" {
  name                 = "${var.prefix}-operator"
  description          = "Calls ondeck status"
  permissions_boundary = local.boundary
  assume_role_policy   = local.trust_maintenance
}

resource "aws_iam_role" "steward_role" {
  name                 = "${var.prefix}-steward"
  description          = "Calls ondeck drain, retire, terminate and pool"
  permissions_boundary = local.boundary
  assume_role_policy   = local.trust_maintenance
}

resource "aws_iam_role" "provision_role" {
  name                 = "${var.prefix}-provision"
  description          = "Calls ondeck provision"
  permissions_boundary = local.boundary
  assume_role_policy   = local.trust_workflows
}

resource "aws_iam_role" "release_role" {
  name                 = "${var.prefix}-release"
  description          = "Calls ondeck release"
  permissions_boundary = local.boundary
  assume_role_policy   = local.trust_workflows
}

resource "aws_iam_role" "machine_role" {
  name                 = "${var.prefix}-machine"
  description          = "Machines of the pool"
  permissions_boundary = local.boundary
  assume_role_policy   = local.trust_machine
}

resource "aws_iam_instance_profile" "machine_profile" {
  name = "${var.prefix}-machine"
  role = aws_iam_role.machine_role.name
}

resource "aws_iam_role_policy" "refresh_policy" {
  name   = "refresh"
  role   = aws_iam_role.refresh_role.name
  policy = local.policy_refresh
}

resource "aws_iam_role_policy" "operator_policy" {
  name   = "operator"
  role   = aws_iam_role.operator_role.name
  policy = local.policy_operator
}

resource "aws_iam_role_policy" "steward_policy" {
  name   = "steward"
  role   = aws_iam_role.steward_role.name
  policy = local.policy_steward
}

resource "aws_iam_role_policy" "provision_policy" {
  name   = "provision"
  role   = aws_iam_role.provision_role.name
  policy = local.policy_provision
}

resource "aws_iam_role_policy" "release_policy" {
  name   = "release"
  role   = aws_iam_role.release_role.name
  policy = local.policy_release
}

resource "aws_iam_role_policy" "machine_policy" {
  name   = "machine"
  role   = aws_iam_role.machine_role.name
  policy = local.policy_machine
}

resource "aws_iam_role_policy" "machine_logs_policy" {
  count  = local.copies_logs ? 1 : 0
  name   = "machine-logs"
  role   = aws_iam_role.machine_role.name
  policy = local.policy_machine_logs
}

resource "aws_iam_role_policy" "machine_connect_policy" {
  count  = var.connect ? 1 : 0
  name   = "machine-connect"
  role   = aws_iam_role.machine_role.name
  policy = local.policy_machine_connect
}

resource "aws_iam_role_policy" "operator_connect_policy" {
  count  = var.connect ? 1 : 0
  name   = "operator-connect"
  role   = aws_iam_role.operator_role.name
  policy = local.policy_operator_connect
}

resource "aws_iam_role_policy" "refresh_volume_key_policy" {
  count  = local.uses_volume_key ? 1 : 0
  name   = "volume-key"
  role   = aws_iam_role.refresh_role.name
  policy = local.policy_volume_key
}

resource "aws_iam_role_policy" "provision_volume_key_policy" {
  count  = local.uses_volume_key ? 1 : 0
  name   = "volume-key"
  role   = aws_iam_role.provision_role.name
  policy = local.policy_volume_key
}

resource "aws_iam_role_policy" "refresh_image_parameter_policy" {
  count  = local.uses_image_parameter ? 1 : 0
  name   = "image-parameter"
  role   = aws_iam_role.refresh_role.name
  policy = local.policy_image_parameter
}

resource "aws_iam_role_policy" "provision_image_parameter_policy" {
  count  = local.uses_image_parameter ? 1 : 0
  name   = "image-parameter"
  role   = aws_iam_role.provision_role.name
  policy = local.policy_image_parameter
}

resource "aws_kms_key" "volume_encryption_key" {
  count               = local.new_volume_key ? 1 : 0
  description         = "Volumes of machines"
  enable_key_rotation = true

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "Account"
        Effect    = "Allow"
        Principal = { AWS = "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:root" }
        Action    = "kms:*"
        Resource  = "*"
      },
      # KMS refuses a key policy whose principal does not exist, so the spot role is a condition.
      {
        Sid       = "SpotMachines"
        Effect    = "Allow"
        Principal = { AWS = "*" }
        Action    = ["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncrypt*"]
        Resource  = "*"
        Condition = {
          ArnEquals = { "aws:PrincipalArn" = local.spot_role_arn }
        }
      },
      {
        Sid       = "SpotGrants"
        Effect    = "Allow"
        Principal = { AWS = "*" }
        Action    = "kms:CreateGrant"
        Resource  = "*"
        Condition = {
          ArnEquals = { "aws:PrincipalArn" = local.spot_role_arn }
          Bool      = { "kms:GrantIsForAWSResource" = "true" }
        }
      },
    ]
  })
}
