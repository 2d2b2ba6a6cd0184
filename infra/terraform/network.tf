resource "aws_security_group" "machine_security_group" {
  name        = "${var.prefix}-machine"
  description = "Machines of the pool - nothing in, everything out"
  vpc_id      = local.vpc_id

  egress {
    protocol    = "-1"
    from_port   = 0
    to_port     = 0
    cidr_blocks = ["0.0.0.0/0"]
  }
}

resource "aws_vpc" "vpc" {
  count                = local.new_network ? 1 : 0
  cidr_block           = var.vpc_cidr
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = { Name = var.prefix }
}

resource "aws_internet_gateway" "internet_gateway" {
  count = local.new_network ? 1 : 0
  tags  = { Name = var.prefix }
}

resource "aws_internet_gateway_attachment" "internet_gateway_attachment" {
  count               = local.new_network ? 1 : 0
  vpc_id              = aws_vpc.vpc[0].id
  internet_gateway_id = aws_internet_gateway.internet_gateway[0].id
}

resource "aws_route_table" "machine_route_table" {
  count  = local.new_network ? 1 : 0
  vpc_id = aws_vpc.vpc[0].id
  tags   = { Name = "${var.prefix}-machine" }
}

resource "aws_route" "machine_internet_route" {
  count                  = local.public_machines ? 1 : 0
  route_table_id         = aws_route_table.machine_route_table[0].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.internet_gateway[0].id

  depends_on = [aws_internet_gateway_attachment.internet_gateway_attachment]
}

resource "aws_route" "machine_nat_route" {
  count                  = local.private_machines ? 1 : 0
  route_table_id         = aws_route_table.machine_route_table[0].id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.nat_gateway[0].id
}

resource "aws_subnet" "machine_subnet_a" {
  count                   = local.new_network ? 1 : 0
  vpc_id                  = aws_vpc.vpc[0].id
  availability_zone       = data.aws_availability_zones.current.names[0]
  cidr_block              = cidrsubnet(var.vpc_cidr, 4, 0)
  map_public_ip_on_launch = local.public_machines
  tags                    = { Name = "${var.prefix}-machine-a" }
}

resource "aws_route_table_association" "machine_subnet_a_routes" {
  count          = local.new_network ? 1 : 0
  subnet_id      = aws_subnet.machine_subnet_a[0].id
  route_table_id = aws_route_table.machine_route_table[0].id
}

resource "aws_subnet" "machine_subnet_b" {
  count                   = local.new_network ? 1 : 0
  vpc_id                  = aws_vpc.vpc[0].id
  availability_zone       = data.aws_availability_zones.current.names[1]
  cidr_block              = cidrsubnet(var.vpc_cidr, 4, 1)
  map_public_ip_on_launch = local.public_machines
  tags                    = { Name = "${var.prefix}-machine-b" }
}

resource "aws_route_table_association" "machine_subnet_b_routes" {
  count          = local.new_network ? 1 : 0
  subnet_id      = aws_subnet.machine_subnet_b[0].id
  route_table_id = aws_route_table.machine_route_table[0].id
}

resource "aws_subnet" "machine_subnet_c" {
  count                   = local.third_zone ? 1 : 0
  vpc_id                  = aws_vpc.vpc[0].id
  availability_zone       = data.aws_availability_zones.current.names[2]
  cidr_block              = cidrsubnet(var.vpc_cidr, 4, 2)
  map_public_ip_on_launch = local.public_machines
  tags                    = { Name = "${var.prefix}-machine-c" }
}

resource "aws_route_table_association" "machine_subnet_c_routes" {
  count          = local.third_zone ? 1 : 0
  subnet_id      = aws_subnet.machine_subnet_c[0].id
  route_table_id = aws_route_table.machine_route_table[0].id
}

resource "aws_subnet" "nat_subnet" {
  count                   = local.private_machines ? 1 : 0
  vpc_id                  = aws_vpc.vpc[0].id
  availability_zone       = data.aws_availability_zones.current.names[0]
  cidr_block              = cidrsubnet(var.vpc_cidr, 4, 3)
  map_public_ip_on_launch = false
  tags                    = { Name = "${var.prefix}-nat" }
}

resource "aws_route_table" "nat_route_table" {
  count  = local.private_machines ? 1 : 0
  vpc_id = aws_vpc.vpc[0].id
  tags   = { Name = "${var.prefix}-nat" }
}

resource "aws_route" "nat_internet_route" {
  count                  = local.private_machines ? 1 : 0
  route_table_id         = aws_route_table.nat_route_table[0].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.internet_gateway[0].id

  depends_on = [aws_internet_gateway_attachment.internet_gateway_attachment]
}

resource "aws_route_table_association" "nat_subnet_routes" {
  count          = local.private_machines ? 1 : 0
  subnet_id      = aws_subnet.nat_subnet[0].id
  route_table_id = aws_route_table.nat_route_table[0].id
}

resource "aws_eip" "nat_address" {
  count  = local.private_machines ? 1 : 0
  domain = "vpc"

  depends_on = [aws_internet_gateway_attachment.internet_gateway_attachment]
}

resource "aws_nat_gateway" "nat_gateway" {
  count         = local.private_machines ? 1 : 0
  subnet_id     = aws_subnet.nat_subnet[0].id
  allocation_id = aws_eip.nat_address[0].allocation_id
}

# Agents poll the table. The endpoint is free, and keeps that traffic off the NAT gateway.
resource "aws_vpc_endpoint" "dynamo_db_endpoint" {
  count             = local.new_endpoint ? 1 : 0
  vpc_endpoint_type = "Gateway"
  service_name      = "com.amazonaws.${data.aws_region.current.region}.dynamodb"
  vpc_id            = local.vpc_id
  route_table_ids   = local.new_network ? aws_route_table.machine_route_table[*].id : var.route_table_ids
}
