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
        "Resource" : "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:role/${aws_iam_role.machine_role.name}",
        "Condition" : {
          "StringEquals" : { "iam:PassedToService" : "ec2.amazonaws.com" }
        }
      }
    ]
  })

  policy_operator = jsonencode({
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
              "EVENT#*",
              "SUMMARY#*",
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
            "dynamodb:LeadingKeys" : [
              "LIVE#*",
              "TERMINATED#*",
              "OPEN-INTENT#*",
              "OPEN-DEMAND#*",
              "EVENT-DAY#*",
              "SUMMARY-DAY#*"
            ]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "ReadEventsOfRuns",
        "Effect" : "Allow",
        "Action" : "dynamodb:Query",
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}/index/events-by-run"
      },
      {
        "Sid" : "CountTickets",
        "Effect" : "Allow",
        "Action" : ["sqs:GetQueueUrl", "sqs:GetQueueAttributes"],
        "Resource" : "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:${var.pool_name}-*"
      },
      {
        "Sid" : "Diagnose",
        "Effect" : "Allow",
        "Action" : [
          "ec2:DescribeInstances",
          "ec2:DescribeLaunchTemplateVersions",
          "ec2:DescribeImages",
          "ec2:DescribeSubnets",
          "ec2:DescribeRouteTables",
          "ec2:DescribeSecurityGroups",
          "servicequotas:GetServiceQuota"
        ],
        "Resource" : "*"
      },
      {
        "Sid" : "SeeProfile",
        "Effect" : "Allow",
        "Action" : "iam:GetInstanceProfile",
        "Resource" : "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:instance-profile/${aws_iam_role.machine_role.name}"
      }
    ]
  })

  policy_steward = jsonencode({
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
              "SETTING"
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
            "dynamodb:LeadingKeys" : ["LIVE#*"]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "ChangeRecords",
        "Effect" : "Allow",
        "Action" : ["dynamodb:UpdateItem", "dynamodb:PartiQLUpdate"],
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : ["INSTANCE#*"]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "WriteEvents",
        "Effect" : "Allow",
        "Action" : "dynamodb:BatchWriteItem",
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : ["EVENT#*"]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "RepairTickets",
        "Effect" : "Allow",
        "Action" : [
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
        "Action" : "sqs:SendMessage",
        "Resource" : "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:${var.pool_name}_*"
      },
      {
        "Sid" : "SeeMachines",
        "Effect" : "Allow",
        "Action" : "ec2:DescribeInstances",
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
      }
    ]
  })

  policy_provision = jsonencode({
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
              "SETTING"
            ]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "ChangeRecords",
        "Effect" : "Allow",
        "Action" : "dynamodb:UpdateItem",
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : ["INSTANCE#*", "RUN#*", "CEILING", "DEMAND#*"]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "NoteAndRemove",
        "Effect" : "Allow",
        "Action" : ["dynamodb:PartiQLUpdate", "dynamodb:PartiQLDelete"],
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : ["INSTANCE#*"]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "WriteEvents",
        "Effect" : "Allow",
        "Action" : ["dynamodb:BatchWriteItem", "dynamodb:PutItem"],
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : ["EVENT#*", "SUMMARY#*"]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "WriteIntents",
        "Effect" : "Allow",
        "Action" : "dynamodb:PutItem",
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : ["INTENT#*"]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "NeverTokens",
        "Effect" : "Deny",
        "Action" : ["dynamodb:*Item", "dynamodb:PartiQL*", "dynamodb:Query"],
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAnyValue:StringLike" : {
            "dynamodb:LeadingKeys" : ["CREDENTIALS#*"]
          }
        }
      },
      {
        "Sid" : "UseTickets",
        "Effect" : "Allow",
        "Action" : [
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
        "Action" : "sqs:SendMessage",
        "Resource" : "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:${var.pool_name}_*"
      },
      {
        "Sid" : "SeeMachines",
        "Effect" : "Allow",
        "Action" : "ec2:DescribeInstances",
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
        "Sid" : "LaunchFromTemplate",
        "Effect" : "Allow",
        "Action" : ["ec2:CreateFleet", "ec2:RunInstances"],
        "Resource" : "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:launch-template/*",
        "Condition" : {
          "StringEquals" : { "aws:ResourceTag/ondeck:pool" : "${local.pool}" }
        }
      },
      {
        "Sid" : "FleetForPool",
        "Effect" : "Allow",
        "Action" : "ec2:CreateFleet",
        "Resource" : [
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
        "Sid" : "NeverLaunchWithoutTemplate",
        "Effect" : "Deny",
        "Action" : "ec2:RunInstances",
        "Resource" : "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:instance/*",
        "Condition" : {
          "ArnNotLike" : { "ec2:LaunchTemplate" : "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:launch-template/*" }
        }
      },
      {
        "Sid" : "TagAtLaunch",
        "Effect" : "Allow",
        "Action" : "ec2:CreateTags",
        "Resource" : "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:*",
        "Condition" : {
          "StringEquals" : {
            "ec2:CreateAction" : ["CreateFleet", "RunInstances"],
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
        "Resource" : "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:role/${aws_iam_role.machine_role.name}",
        "Condition" : {
          "StringEquals" : { "iam:PassedToService" : "ec2.amazonaws.com" }
        }
      }
    ]
  })

  policy_release = jsonencode({
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
              "SETTING"
            ]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "ChangeRecords",
        "Effect" : "Allow",
        "Action" : ["dynamodb:UpdateItem", "dynamodb:PartiQLUpdate"],
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : ["INSTANCE#*", "RUN#*"]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "WriteEvents",
        "Effect" : "Allow",
        "Action" : "dynamodb:BatchWriteItem",
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : ["EVENT#*"]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "NeverTokens",
        "Effect" : "Deny",
        "Action" : ["dynamodb:*Item", "dynamodb:PartiQL*", "dynamodb:Query"],
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAnyValue:StringLike" : {
            "dynamodb:LeadingKeys" : ["CREDENTIALS#*"]
          }
        }
      },
      {
        "Sid" : "SendTickets",
        "Effect" : "Allow",
        "Action" : ["sqs:GetQueueUrl", "sqs:SendMessage"],
        "Resource" : "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:${var.pool_name}-*"
      },
      {
        "Sid" : "WakeMachines",
        "Effect" : "Allow",
        "Action" : "sqs:SendMessage",
        "Resource" : "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:${var.pool_name}_*"
      },
      {
        "Sid" : "SeeMachines",
        "Effect" : "Allow",
        "Action" : "ec2:DescribeInstances",
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
      }
    ]
  })

  policy_machine = jsonencode({
    "Version" : "2012-10-17",
    "Statement" : [
      {
        "Sid" : "ReadRecord",
        "Effect" : "Allow",
        "Action" : "dynamodb:GetItem",
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : ["INSTANCE#*", "SETTING", "CREDENTIALS#*"]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "ReadSettings",
        "Effect" : "Allow",
        "Action" : "dynamodb:Query",
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringLike" : {
            "dynamodb:LeadingKeys" : ["SETTING"]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "WriteOwnStatus",
        "Effect" : "Allow",
        "Action" : "dynamodb:UpdateItem",
        "Resource" : "arn:${data.aws_partition.current.partition}:dynamodb:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:table/${var.pool_name}",
        "Condition" : {
          "ForAllValues:StringEquals" : {
            "dynamodb:LeadingKeys" : [
              "AGENT#$${ec2:SourceInstanceARN}"
            ],
            "dynamodb:Attributes" : [
              "PK",
              "SK",
              "busy",
              "heartbeatAt",
              "heartbeatPeriodMs",
              "interrupted",
              "protocol",
              "readiness",
              "readinessAt",
              "readyClaimMs",
              "registrationMs",
              "signal",
              "signalAt",
              "signalDetail",
              "signalGeneration",
              "signalLabel",
              "signalRun",
              "ttl"
            ]
          },
          "Null" : { "dynamodb:LeadingKeys" : "false" }
        }
      },
      {
        "Sid" : "MakeOwnQueue",
        "Effect" : "Allow",
        "Action" : ["sqs:CreateQueue", "sqs:TagQueue"],
        "Resource" : "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:${var.pool_name}_*",
        "Condition" : {
          "StringEquals" : { "aws:RequestTag/ondeck:machine" : "$${ec2:SourceInstanceARN}" },
          "StringEqualsIfExists" : { "aws:ResourceTag/ondeck:machine" : "$${ec2:SourceInstanceARN}" },
          "ForAllValues:StringEquals" : {
            "aws:TagKeys" : ["managed-by", "ondeck:machine", "ondeck:pool"]
          }
        }
      },
      {
        "Sid" : "HearWakeUps",
        "Effect" : "Allow",
        "Action" : "sqs:ReceiveMessage",
        "Resource" : "arn:${data.aws_partition.current.partition}:sqs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:${var.pool_name}_*",
        "Condition" : {
          "StringEquals" : { "aws:ResourceTag/ondeck:machine" : "$${ec2:SourceInstanceARN}" }
        }
      }
    ]
  })

  policy_machine_logs = jsonencode({
    "Version" : "2012-10-17",
    "Statement" : [
      {
        "Sid" : "CopyLogs",
        "Effect" : "Allow",
        "Action" : ["logs:CreateLogStream", "logs:PutLogEvents"],
        "Resource" : "arn:${data.aws_partition.current.partition}:logs:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:log-group:${var.log_group}:log-stream:${var.pool_name}/*"
      }
    ]
  })

  policy_machine_connect = jsonencode({
    "Version" : "2012-10-17",
    "Statement" : [
      {
        "Sid" : "AcceptSessions",
        "Effect" : "Allow",
        "Action" : [
          "ssm:UpdateInstanceInformation",
          "ssmmessages:CreateControlChannel",
          "ssmmessages:CreateDataChannel",
          "ssmmessages:OpenControlChannel",
          "ssmmessages:OpenDataChannel"
        ],
        "Resource" : "*"
      }
    ]
  })

  policy_operator_connect = jsonencode({
    "Version" : "2012-10-17",
    "Statement" : [
      {
        "Sid" : "StartSessions",
        "Effect" : "Allow",
        "Action" : "ssm:StartSession",
        "Resource" : "arn:${data.aws_partition.current.partition}:ec2:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:instance/*",
        "Condition" : {
          "StringEquals" : { "ssm:resourceTag/ondeck:pool" : "${local.pool}" }
        }
      },
      {
        "Sid" : "UseShellDocument",
        "Effect" : "Allow",
        "Action" : "ssm:StartSession",
        "Resource" : "arn:${data.aws_partition.current.partition}:ssm:${data.aws_region.current.region}:${data.aws_caller_identity.current.account_id}:document/SSM-SessionManagerRunShell"
      },
      {
        "Sid" : "UseOwnSessions",
        "Effect" : "Allow",
        "Action" : ["ssm:TerminateSession", "ssm:ResumeSession", "ssmmessages:OpenDataChannel"],
        "Resource" : "arn:${data.aws_partition.current.partition}:ssm:*:*:session/$${aws:userid}-*"
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
        "Resource" : "${local.volume_key_arn}"
      },
      {
        "Sid" : "GrantVolumeKey",
        "Effect" : "Allow",
        "Action" : "kms:CreateGrant",
        "Resource" : "${local.volume_key_arn}",
        "Condition" : {
          "Bool" : { "kms:GrantIsForAWSResource" : "true" }
        }
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
}
