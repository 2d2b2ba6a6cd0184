# The same trust policies as in ../trust.
locals {
  issuer = "token.actions.githubusercontent.com"

  # How subjects of the repository's tokens begin: with names, and with names and ids.
  repositories = concat(
    ["repo:${var.repository}"],
    local.has_ids ? ["repo:${var.repository_with_ids}"] : [],
  )
  repository_id = local.has_ids ? { "${local.issuer}:repository_id" = split("@", var.repository_with_ids)[2] } : {}

  existing_provider = "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:oidc-provider/${local.issuer}"
  provider          = local.new_oidc_provider ? one(aws_iam_openid_connect_provider.git_hub_oidc_provider[*].arn) : local.existing_provider

  trust_of_github = {
    Effect    = "Allow"
    Principal = { Federated = local.provider }
    Action    = "sts:AssumeRoleWithWebIdentity"
  }

  trust_maintenance = jsonencode({
    Version = "2012-10-17"
    Statement = [
      merge(local.trust_of_github, {
        Sid = "Maintenance"
        Condition = {
          StringEquals = merge(local.repository_id, {
            "${local.issuer}:aud" = "sts.amazonaws.com"
            "${local.issuer}:ref" = "refs/heads/${var.default_branch}"
            "${local.issuer}:sub" = [for it in local.repositories : "${it}:environment:${var.maintenance_environment}"]
          })
        }
      }),
    ]
  })

  workflow_kind = local.has_workflow_environment ? "environment:${var.workflow_environment}" : "ref:*"

  trust_workflows = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [
        merge(local.trust_of_github, {
          Sid = "Workflows"
          Condition = {
            StringEquals = merge(local.repository_id, {
              "${local.issuer}:aud" = "sts.amazonaws.com"
            })
            StringLike = {
              "${local.issuer}:ref" = var.workflow_refs
              "${local.issuer}:sub" = [for it in local.repositories : "${it}:${local.workflow_kind}"]
            }
          }
        }),
      ],
      local.admits_pull_requests ? [
        merge(local.trust_of_github, {
          Sid = "PullRequests"
          Condition = {
            StringEquals = merge(local.repository_id, {
              "${local.issuer}:aud" = "sts.amazonaws.com"
              "${local.issuer}:sub" = [for it in local.repositories : "${it}:pull_request"]
            })
          }
        }),
      ] : [],
    )
  })

  trust_machine = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Effect    = "Allow"
        Principal = { Service = "ec2.amazonaws.com" }
        Action    = "sts:AssumeRole"
      },
    ]
  })
}
