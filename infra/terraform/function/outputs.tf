output "function_arn" {
  description = "Function that refreshes the pool"
  value       = aws_lambda_function.refresh_function.arn
}

output "function_role_arn" {
  description = "Role of the function"
  value       = aws_iam_role.function_role.arn
}
