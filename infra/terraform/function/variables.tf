variable "repository" {
  type        = string
  description = "Repository whose workflows use the pool, as GitHub spells it, such as acme/web"

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$", var.repository))
    error_message = "Must match ^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$."
  }
}

variable "pool" {
  type        = string
  description = "Pool without its trust level, in lower case, such as acme/web"

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]*(/[a-z0-9._-]+)?$", var.pool))
    error_message = "Must match ^[a-z0-9][a-z0-9-]*(/[a-z0-9._-]+)?$."
  }
}

variable "trust_level" {
  type        = string
  description = "Trust level of the pool, such as release; empty for the pool without a level"
  default     = ""

  validation {
    condition     = can(regex("^([a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?)?$", var.trust_level))
    error_message = "Must match ^([a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?)?$."
  }
}

variable "pool_name" {
  type        = string
  description = "Name of the pool's table, such as ondeck-acme-web-a7a54a76; the last eight characters may be question marks"

  validation {
    condition     = can(regex("^ondeck-[a-z0-9-]+-([0-9a-f]{8}|[?]{8})$", var.pool_name))
    error_message = "Must match ^ondeck-[a-z0-9-]+-([0-9a-f]{8}|[?]{8})$."
  }
}

variable "prefix" {
  type        = string
  description = "How the names of the function and its roles begin; another one for each pool of an account"
  default     = "ondeck"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,49}$", var.prefix))
    error_message = "Must match ^[a-z][a-z0-9-]{0,49}$."
  }
}

variable "machine_role" {
  type        = string
  description = "Role of the machines, by name"
  default     = "ondeck-machine"

  validation {
    condition     = can(regex("^[A-Za-z0-9+=,.@_-]{1,64}$", var.machine_role))
    error_message = "Must match ^[A-Za-z0-9+=,.@_-]{1,64}$."
  }
}

variable "code_bucket" {
  type        = string
  description = "Bucket of the package, whose one file is the program, called bootstrap"
}

variable "code_key" {
  type        = string
  description = "Key of the package in its bucket"
}

variable "architecture" {
  type        = string
  description = "Architecture of the program"
  default     = "arm64"

  validation {
    condition     = contains(["arm64", "x86_64"], var.architecture)
    error_message = "Must be arm64 or x86_64."
  }
}

variable "app_id" {
  type        = string
  description = "Number of the GitHub App that registers runners"

  validation {
    condition     = can(regex("^[0-9]+$", var.app_id))
    error_message = "Must match ^[0-9]+$."
  }
}

variable "key_source" {
  type        = string
  description = "Where the key of the App is, as ssm:NAME or secretsmanager:ARN"

  validation {
    condition     = can(regex("^(ssm|secretsmanager):[A-Za-z0-9/_+=.@:!-]+$", var.key_source))
    error_message = "Must match ^(ssm|secretsmanager):[A-Za-z0-9/_+=.@:!-]+$."
  }
}

variable "key_arn" {
  type        = string
  description = "ARN of that parameter or secret, which alone the function may read"

  validation {
    condition     = can(regex("^arn:[a-z-]+:(ssm|secretsmanager):[a-z0-9-]+:[0-9]{12}:(parameter/|secret:)[A-Za-z0-9/_+=.@!-]+$", var.key_arn))
    error_message = "Must match ^arn:[a-z-]+:(ssm|secretsmanager):[a-z0-9-]+:[0-9]{12}:(parameter/|secret:)[A-Za-z0-9/_+=.@!-]+$."
  }
}

variable "image_parameter" {
  type        = string
  description = "Parameter of Systems Manager with the image's id, such as /images/ci, if ami is resolve:ssm:/images/ci"
  default     = ""

  validation {
    condition     = can(regex("^(/[A-Za-z0-9._/-]+)?$", var.image_parameter))
    error_message = "Must match ^(/[A-Za-z0-9._/-]+)?$."
  }
}

variable "volume_key" {
  type        = string
  description = "KMS key that the account encrypts volumes with, by its ARN; none for the key of AWS"
  default     = "none"

  validation {
    condition     = can(regex("^(none|arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+)$", var.volume_key))
    error_message = "Must match ^(none|arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+)$."
  }
}

variable "webhook_source" {
  type        = string
  description = "Where the address for notices is, as ssm:NAME or secretsmanager:ARN; empty for no notices"
  default     = ""

  validation {
    condition     = can(regex("^((ssm|secretsmanager):[A-Za-z0-9/_+=.@:!-]+)?$", var.webhook_source))
    error_message = "Must match ^((ssm|secretsmanager):[A-Za-z0-9/_+=.@:!-]+)?$."
  }
}

variable "webhook_arn" {
  type        = string
  description = "ARN of that parameter or secret, which the function may then read"
  default     = ""

  validation {
    condition     = can(regex("^(arn:[a-z-]+:(ssm|secretsmanager):[a-z0-9-]+:[0-9]{12}:(parameter/|secret:)[A-Za-z0-9/_+=.@!-]+)?$", var.webhook_arn))
    error_message = "Must match ^(arn:[a-z-]+:(ssm|secretsmanager):[a-z0-9-]+:[0-9]{12}:(parameter/|secret:)[A-Za-z0-9/_+=.@!-]+)?$."
  }
}

variable "ami" {
  type        = string
  description = "Input ami of refresh; empty to leave the stored one as it is, here and below"
  default     = ""
}

variable "subnet_ids" {
  type        = string
  description = "Input subnet-ids of refresh, separated by blanks"
  default     = ""
}

variable "security_group_ids" {
  type        = string
  description = "Input security-group-ids of refresh"
  default     = ""
}

variable "iam_instance_profile" {
  type        = string
  description = "Input iam-instance-profile of refresh"
  default     = ""
}

variable "min_idle" {
  type        = string
  description = "Input min-idle of refresh"
  default     = ""
}

variable "reserved_concurrency" {
  type        = number
  description = "Executions that are reserved for the function, 2 or more, if the account's quota leaves room for that; 0 for none"
  default     = 0

  validation {
    condition     = var.reserved_concurrency >= 0
    error_message = "Must be 0 or more."
  }
}

variable "machines_alarm" {
  type        = number
  description = "Number of machines above which an alarm is raised, as a limit for the cost; 0 for no such alarm"
  default     = 0

  validation {
    condition     = var.machines_alarm >= 0
    error_message = "Must be 0 or more."
  }
}

variable "alarm_topic" {
  type        = string
  description = "Topic of SNS that alarms are sent to, by its ARN; empty for none"
  default     = ""

  validation {
    condition     = can(regex("^(arn:[a-z-]+:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+)?$", var.alarm_topic))
    error_message = "Must match ^(arn:[a-z-]+:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+)?$."
  }
}

variable "monthly_budget" {
  type        = number
  description = "Dollars that the machines of the pool may cost in a month; 0 for no budget"
  default     = 0

  validation {
    condition     = var.monthly_budget >= 0
    error_message = "Must be 0 or more."
  }

  validation {
    condition     = var.monthly_budget == 0 || var.budget_email != "" || var.alarm_topic != ""
    error_message = "A budget must be given with budget_email or alarm_topic."
  }
}

variable "budget_email" {
  type        = string
  description = "Address that is told if the budget is exceeded, or will be; alarm_topic is told as well"
  default     = ""

  validation {
    condition     = can(regex("^([A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+)?$", var.budget_email))
    error_message = "Must match ^([A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+)?$."
  }
}

variable "permissions_boundary" {
  type        = string
  description = "Managed policy that limits both roles, by its ARN"
  default     = ""

  validation {
    condition     = can(regex("^(arn:[a-z-]+:iam::[0-9a-z]+:policy/.+)?$", var.permissions_boundary))
    error_message = "Must match ^(arn:[a-z-]+:iam::[0-9a-z]+:policy/.+)?$."
  }
}
