# Written by cargo xtask infra from the files in policies/.
locals {
  policy_refresh = jsonencode({
    "Version" : "2012-10-17",
    "Statement" : [
      {
        "Sid" : "ReadRecords",
        "Effect" : "Allow",
        "Action" : ["dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query"],
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : [
              "INSTANCE#*",
              "AGENT#*",
              "RUN#*",
              "DEMAND#*",
              "INTENT#*",
              "SETTING",
              "CEILING"
            ]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "ReadLists",
        "Effect" : "Allow",
        "Action" : "dynamodb:Query",
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}/index/lists",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : ["LIVE#*", "TERMINATED#*", "OPEN-INTENT#*", "OPEN-DEMAND#*"]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "ChangeRecords",
        "Effect" : "Allow",
        "Action" : [
          "dynamodb:UpdateItem",
          "dynamodb:PutItem",
          "dynamodb:DeleteItem",
          "dynamodb:PartiQLUpdate",
          "dynamodb:PartiQLDelete"
        ],
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : [
              "INSTANCE#*",
              "RUN#*",
              "SETTING",
              "CEILING",
              "INTENT#*",
              "DEMAND#*"
            ]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "WriteEventsAndTokens",
        "Effect" : "Allow",
        "Action" : ["dynamodb:BatchWriteItem", "dynamodb:PutItem"],
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : ["EVENT#*", "SUMMARY#*", "CREDENTIALS#*"]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "MakeTable",
        "Effect" : "Allow",
        "Action" : [
          "dynamodb:CreateTable",
          "dynamodb:TagResource",
          "dynamodb:DescribeTable",
          "dynamodb:DescribeTimeToLive",
          "dynamodb:UpdateTimeToLive"
        ],
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}"
      },
      {
        "Sid" : "MakeAndUseQueues",
        "Effect" : "Allow",
        "Action" : [
          "sqs:CreateQueue",
          "sqs:TagQueue",
          "sqs:ListQueueTags",
          "sqs:SetQueueAttributes",
          "sqs:GetQueueUrl",
          "sqs:GetQueueAttributes",
          "sqs:SendMessage",
          "sqs:ReceiveMessage",
          "sqs:ChangeMessageVisibility",
          "sqs:DeleteMessage"
        ],
        "Resource" : "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:${var.pool_name}-*"
      },
      {
        "Sid" : "WakeMachines",
        "Effect" : "Allow",
        "Action" : ["sqs:SendMessage", "sqs:GetQueueAttributes", "sqs:DeleteQueue"],
        "Resource" : "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:${var.pool_name}_*"
      },
      {
        "Sid" : "SeeMachinesAndTemplate",
        "Effect" : "Allow",
        "Action" : [
          "ec2:DescribeInstances",
          "ec2:DescribeLaunchTemplateVersions",
          "ec2:DescribeImages",
          "sqs:ListQueues"
        ],
        "Resource" : "*"
      },
      {
        "Sid" : "TerminateMachines",
        "Effect" : "Allow",
        "Action" : "ec2:TerminateInstances",
        "Resource" : "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:instance/*",
        "Condition" : {
          "StringEquals" : { "aws:ResourceTag/ondeck:pool" : "${local.pool}" }
        }
      },
      {
        "Sid" : "UseTemplate",
        "Effect" : "Allow",
        "Action" : [
          "ec2:CreateLaunchTemplateVersion",
          "ec2:ModifyLaunchTemplate",
          "ec2:CreateFleet",
          "ec2:RunInstances"
        ],
        "Resource" : "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:launch-template/*",
        "Condition" : {
          "StringEquals" : { "aws:ResourceTag/ondeck:pool" : "${local.pool}" }
        }
      },
      {
        "Sid" : "MakeForPool",
        "Effect" : "Allow",
        "Action" : ["ec2:CreateLaunchTemplate", "ec2:CreateFleet"],
        "Resource" : [
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:launch-template/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:fleet/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:instance/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:volume/*"
        ],
        "Condition" : {
          "StringEquals" : { "aws:RequestTag/ondeck:pool" : "${local.pool}" }
        }
      },
      {
        "Sid" : "FleetWith",
        "Effect" : "Allow",
        "Action" : "ec2:CreateFleet",
        "Resource" : ["arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}::image/*", "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:subnet/*"]
      },
      {
        "Sid" : "LaunchForPool",
        "Effect" : "Allow",
        "Action" : "ec2:RunInstances",
        "Resource" : [
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:instance/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:volume/*"
        ],
        "Condition" : {
          "StringEquals" : { "aws:RequestTag/ondeck:pool" : "${local.pool}" },
          "ArnLike" : { "ec2:LaunchTemplate" : "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:launch-template/*" }
        }
      },
      {
        "Sid" : "LaunchAsTemplate",
        "Effect" : "Allow",
        "Action" : "ec2:RunInstances",
        "Resource" : [
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}::image/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}::snapshot/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:key-pair/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:network-interface/*",
          "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:security-group/*"
        ],
        "Condition" : {
          "ArnLike" : { "ec2:LaunchTemplate" : "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:launch-template/*" },
          "Bool" : { "ec2:IsLaunchTemplateResource" : "true" }
        }
      },
      {
        "Sid" : "LaunchInSubnet",
        "Effect" : "Allow",
        "Action" : "ec2:RunInstances",
        "Resource" : "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:subnet/*",
        "Condition" : {
          "ArnLike" : { "ec2:LaunchTemplate" : "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:launch-template/*" }
        }
      },
      {
        "Sid" : "LaunchSpot",
        "Effect" : "Allow",
        "Action" : "ec2:RunInstances",
        "Resource" : "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:spot-instances-request/*"
      },
      {
        "Sid" : "TagAtCreation",
        "Effect" : "Allow",
        "Action" : "ec2:CreateTags",
        "Resource" : "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:*",
        "Condition" : {
          "StringEquals" : {
            "ec2:CreateAction" : ["CreateLaunchTemplate", "CreateFleet", "RunInstances"],
            "aws:RequestTag/ondeck:pool" : "${local.pool}"
          },
          "ForAllValues:StringEquals" : {
            "aws:TagKeys" : [
              "Name",
              "managed-by",
              "ondeck:intent",
              "ondeck:mem",
              "ondeck:pool",
              "ondeck:resource-class",
              "ondeck:run"
            ]
          }
        }
      },
      {
        "Sid" : "PassMachineRole",
        "Effect" : "Allow",
        "Action" : "iam:PassRole",
        "Resource" : "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:role/${var.machine_role}",
        "Condition" : {
          "StringEquals" : { "iam:PassedToService" : "ec2.amazonaws.com" }
        }
      }
    ]
  })

  policy_function = jsonencode({
    "Version" : "2012-10-17",
    "Statement" : [
      {
        "Sid" : "ReadKeyOfApp",
        "Effect" : "Allow",
        "Action" : ["ssm:GetParameter", "secretsmanager:GetSecretValue"],
        "Resource" : "${var.key_arn}"
      },
      {
        "Sid" : "WriteLog",
        "Effect" : "Allow",
        "Action" : ["logs:CreateLogStream", "logs:PutLogEvents"],
        "Resource" : "arn:${data.aws_partition.current.partition}:logs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:log-group:/aws/lambda/${local.function_name}:log-stream:*"
      }
    ]
  })

  policy_image_parameter = jsonencode({
    "Version" : "2012-10-17",
    "Statement" : [
      {
        "Sid" : "ReadImageParameter",
        "Effect" : "Allow",
        "Action" : "ssm:GetParameters",
        "Resource" : "arn:${data.aws_partition.current.partition}:ssm:${data.aws_region.current.region}:*:parameter${var.image_parameter}"
      }
    ]
  })

  policy_volume_key = jsonencode({
    "Version" : "2012-10-17",
    "Statement" : [
      {
        "Sid" : "UseVolumeKey",
        "Effect" : "Allow",
        "Action" : [
          "kms:Decrypt",
          "kms:DescribeKey",
          "kms:GenerateDataKeyWithoutPlaintext",
          "kms:ReEncrypt*"
        ],
        "Resource" : "${var.volume_key}"
      },
      {
        "Sid" : "GrantVolumeKey",
        "Effect" : "Allow",
        "Action" : "kms:CreateGrant",
        "Resource" : "${var.volume_key}",
        "Condition" : {
          "Bool" : { "kms:GrantIsForAWSResource" : "true" }
        }
      }
    ]
  })

  policy_notice_webhook = jsonencode({
    "Version" : "2012-10-17",
    "Statement" : [
      {
        "Sid" : "ReadNoticeWebhook",
        "Effect" : "Allow",
        "Action" : ["ssm:GetParameter", "secretsmanager:GetSecretValue"],
        "Resource" : "${var.webhook_arn}"
      }
    ]
  })
}
