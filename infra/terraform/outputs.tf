output "pool" {
  description = "Input pool of every mode"
  value       = local.pool
}

output "aws_region" {
  description = "Input aws-region of every mode"
  value       = data.aws_region.current.region
}

output "subnet_ids" {
  description = "Input subnet-ids of refresh"
  value       = join(" ", local.subnet_ids)
}

output "security_group_ids" {
  description = "Input security-group-ids of refresh"
  value       = aws_security_group.machine_security_group.id
}

output "iam_instance_profile" {
  description = "Input iam-instance-profile of refresh"
  value       = aws_iam_instance_profile.machine_profile.arn
}

output "refresh_role_arn" {
  description = "Role of the job that refreshes"
  value       = aws_iam_role.refresh_role.arn
}

output "operator_role_arn" {
  description = "Role of operators"
  value       = aws_iam_role.operator_role.arn
}

output "steward_role_arn" {
  description = "Role of those who take machines out"
  value       = aws_iam_role.steward_role.arn
}

output "provision_role_arn" {
  description = "Role of the first job of a workflow"
  value       = aws_iam_role.provision_role.arn
}

output "release_role_arn" {
  description = "Role of the last job of a workflow"
  value       = aws_iam_role.release_role.arn
}

output "machine_role_arn" {
  description = "Role of the machines"
  value       = aws_iam_role.machine_role.arn
}

output "vpc_id" {
  description = "Network of the machines"
  value       = local.vpc_id
}

output "volume_key_arn" {
  description = "Key to encrypt volumes with"
  value       = local.uses_volume_key ? local.volume_key_arn : null
}
