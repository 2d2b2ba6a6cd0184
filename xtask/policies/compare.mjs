// Evaluates what the gateway was asked with another implementation of IAM, and lists each answer
// that differs. Called by `cargo xtask policies` with the file that a test has written.
import { readFileSync } from 'node:fs'
import { runSimulation } from '@cloud-copilot/iam-simulate'

const MULTIVALUED = new Set(['aws:tagkeys', 'dynamodb:attributes', 'dynamodb:leadingkeys'])
const ACCOUNT = '000000000000'

const { policies, asked } = JSON.parse(readFileSync(process.argv[2], 'utf8'))
const counts = {}
let differences = 0
for (const it of asked) {
  const value = ([key, values]) => [key, MULTIVALUED.has(key.toLowerCase()) ? values : values[0]]
  const result = await runSimulation(
    {
      request: {
        principal: `arn:aws:iam::${ACCOUNT}:role/${it.role}`,
        action: it.action,
        resource: { resource: it.resource, accountId: ACCOUNT },
        contextVariables: Object.fromEntries(Object.entries(it.keys).map(value)),
      },
      identityPolicies: [{ name: it.role, policy: policies[it.role] }],
      serviceControlPolicies: [],
      resourceControlPolicies: [],
    },
    {},
  )
  const answer = result.overallResult ?? JSON.stringify(result.errors ?? result)
  counts[answer] = (counts[answer] ?? 0) + 1
  const denied = answer === 'ImplicitlyDenied' || answer === 'ExplicitlyDenied'
  if (it.allowed ? answer !== 'Allowed' : !denied) {
    differences += 1
    const ours = it.allowed ? 'allowed' : 'denied'
    console.error(`${it.role}: ${it.action} on ${it.resource} (${it.why})`)
    console.error(`  here: ${ours}; iam-simulate: ${answer}`)
  }
}
console.log(`${asked.length} questions to IAM, ${differences} different answers: ${JSON.stringify(counts)}`)
process.exitCode = differences === 0 && asked.length > 0 ? 0 : 1
