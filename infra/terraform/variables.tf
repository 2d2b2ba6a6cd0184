variable "repository" {
  type        = string
  description = "Repository whose workflows use the pool, as GitHub spells it, such as acme/web"

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$", var.repository))
    error_message = "Must match ^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$."
  }
}

variable "repository_with_ids" {
  type        = string
  description = "The repository with ids, such as acme@123456/web@456789, if subjects of its tokens have them"
  default     = ""

  validation {
    condition     = can(regex("^([A-Za-z0-9][A-Za-z0-9-]*@[0-9]+/[A-Za-z0-9._-]+@[0-9]+)?$", var.repository_with_ids))
    error_message = "Must match ^([A-Za-z0-9][A-Za-z0-9-]*@[0-9]+/[A-Za-z0-9._-]+@[0-9]+)?$."
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
  description = "How the names of roles, instance profile and security group begin; another one for each pool of an account"
  default     = "ondeck"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,49}$", var.prefix))
    error_message = "Must match ^[a-z][a-z0-9-]{0,49}$."
  }
}

variable "default_branch" {
  type        = string
  description = "Branch from which refresh, operator and steward roles may be assumed"
  default     = "main"

  validation {
    condition     = can(regex("^[A-Za-z0-9._/-]+$", var.default_branch))
    error_message = "Must match ^[A-Za-z0-9._/-]+$."
  }
}

variable "maintenance_environment" {
  type        = string
  description = "Environment whose jobs may assume the roles refresh, operator and steward; limit it to the default branch in GitHub"
  default     = "ondeck-refresh"

  validation {
    condition     = can(regex("^[A-Za-z0-9._-]+$", var.maintenance_environment))
    error_message = "Must match ^[A-Za-z0-9._-]+$."
  }
}

variable "workflow_refs" {
  type        = list(string)
  description = "Refs whose jobs may assume the roles provision and release"
  default     = ["refs/heads/*"]

  validation {
    condition     = alltrue([for it in var.workflow_refs : can(regex("^refs/(heads|tags)/[A-Za-z0-9._/*-]+$", it))])
    error_message = "Each must match ^refs/(heads|tags)/[A-Za-z0-9._/*-]+$."
  }
}

variable "workflow_environment" {
  type        = string
  description = "Environment whose jobs alone may assume the roles provision and release; empty for jobs without an environment"
  default     = ""

  validation {
    condition     = can(regex("^[A-Za-z0-9._-]*$", var.workflow_environment))
    error_message = "Must match ^[A-Za-z0-9._-]*$."
  }
}

variable "pull_requests" {
  type        = bool
  description = "Whether jobs of pull requests may assume the roles provision and release; never with workflow_environment"
  default     = true
}

variable "oidc_provider" {
  type        = string
  description = "Whether the account has an identity provider for GitHub's tokens (existing) or needs one (new)"
  default     = "new"

  validation {
    condition     = contains(["new", "existing"], var.oidc_provider)
    error_message = "Must be new or existing."
  }
}

variable "spot_role" {
  type        = string
  description = "Whether the account has the role AWSServiceRoleForEC2Spot, or needs no spot machines (existing), or needs the role (new)"
  default     = "existing"

  validation {
    condition     = contains(["new", "existing"], var.spot_role)
    error_message = "Must be new or existing."
  }
}

variable "vpc_id" {
  type        = string
  description = "Network of the machines; empty to create one"
  default     = ""

  validation {
    condition     = can(regex("^(vpc-[0-9a-z]+)?$", var.vpc_id))
    error_message = "Must match ^(vpc-[0-9a-z]+)?$."
  }
}

variable "subnet_ids" {
  type        = list(string)
  description = "Subnets of an existing network, no more than one in each availability zone"
  default     = []

  validation {
    condition     = var.vpc_id == "" || length(var.subnet_ids) > 0
    error_message = "An existing network must be given with subnet_ids."
  }
}

variable "route_table_ids" {
  type        = list(string)
  description = "Route tables of an existing network that get an endpoint for DynamoDB; empty if they have one"
  default     = []
}

variable "vpc_cidr" {
  type        = string
  description = "Addresses of a new network"
  default     = "10.77.0.0/16"

  validation {
    condition     = can(regex("^[0-9]{1,3}[.][0-9]{1,3}[.]0[.]0/16$", var.vpc_cidr))
    error_message = "Must match ^[0-9]{1,3}[.][0-9]{1,3}[.]0[.]0/16$."
  }
}

variable "zones" {
  type        = number
  description = "Number of availability zones that a new network uses"
  default     = 3

  validation {
    condition     = contains([2, 3], var.zones)
    error_message = "Must be 2 or 3."
  }
}

variable "nat" {
  type        = bool
  description = "Whether machines in a new network have private addresses and reach the internet by a NAT gateway"
  default     = false
}

variable "volume_key" {
  type        = string
  description = "KMS key that the account encrypts volumes with, by its ARN; new to create one, none for the key of AWS"
  default     = "none"

  validation {
    condition     = can(regex("^(none|new|arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+)$", var.volume_key))
    error_message = "Must match ^(none|new|arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+)$."
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

variable "log_group" {
  type        = string
  description = "Log group of machine-logs; empty if refresh is not given machine-logs"
  default     = ""

  validation {
    condition     = can(regex("^[A-Za-z0-9._/#-]*$", var.log_group))
    error_message = "Must match ^[A-Za-z0-9._/#-]*$."
  }
}

variable "connect" {
  type        = bool
  description = "Whether ondeck connect may open sessions on machines"
  default     = false
}

variable "permissions_boundary" {
  type        = string
  description = "Managed policy that limits all roles, by its ARN"
  default     = ""

  validation {
    condition     = can(regex("^(arn:[a-z-]+:iam::[0-9a-z]+:policy/.+)?$", var.permissions_boundary))
    error_message = "Must match ^(arn:[a-z-]+:iam::[0-9a-z]+:policy/.+)?$."
  }
}
