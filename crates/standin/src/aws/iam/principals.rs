//! Who calls: access keys, the roles behind them, and their policies.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::arns::{ACCOUNT, Arns};
use super::{Authorization, Context, Decision, Policy, decide};
use crate::aws::ec2::Ec2;
use crate::sync::locked;

/// A role that has a policy of its own in the folder `policies`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Refresh,
    Provision,
    Release,
    Operator,
    /// Calls `ondeck drain`, `retire`, `terminate` and `pool`.
    Steward,
    /// A machine on EC2.
    Machine,
    /// A machine elsewhere whose records are on AWS.
    LocalMachine,
}

impl Role {
    pub const ALL: [Role; 7] = [
        Role::Refresh,
        Role::Provision,
        Role::Release,
        Role::Operator,
        Role::Steward,
        Role::Machine,
        Role::LocalMachine,
    ];

    /// The name of the role's policy file, without `.json`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Refresh => "refresh",
            Role::Provision => "provision",
            Role::Release => "release",
            Role::Operator => "operator",
            Role::Steward => "steward",
            Role::Machine => "machine",
            Role::LocalMachine => "local-machine",
        }
    }

    /// The role that calls a subcommand of ondeck. One without a role of its own is the operator's.
    pub fn of_command(command: &str) -> Role {
        match command {
            "refresh" | "apply" => Role::Refresh,
            "provision" => Role::Provision,
            "release" => Role::Release,
            "drain" | "retire" | "terminate" | "pool" | "drill" => Role::Steward,
            _ => Role::Operator,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A pool, by the values that replace the placeholders of its policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyPool {
    /// `POOL`: owner and repository in lower case.
    pub pool: String,
    /// `NAME`: the name of its table, queues and launch template.
    pub name: String,
    /// `MACHINE-ROLE`: the role of its machines.
    pub machine_role: String,
}

/// A caller: its name, its policies, and the condition keys that each of its requests has.
#[derive(Debug)]
pub(crate) struct Principal {
    pub(crate) arn: String,
    policies: Vec<Policy>,
    context: Context,
}

impl Principal {
    /// What IAM answers to this caller. Adds the caller's condition keys to the request's.
    pub(crate) fn decide(&self, asked: &mut Authorization) -> Decision {
        asked.context.extend(&self.context);
        decide(&self.policies, asked)
    }
}

/// All callers that a gateway knows.
#[derive(Debug)]
pub(crate) struct Principals {
    arns: Arns,
    /// The text of each role's policy, with its placeholders.
    texts: BTreeMap<Role, String>,
    pools: Mutex<BTreeMap<String, PolicyPool>>,
    keys: Mutex<HashMap<String, Arc<Principal>>>,
}

impl Principals {
    /// Reads the policies of all roles from a folder.
    ///
    /// # Panics
    /// If a policy is missing.
    pub(crate) fn new(folder: &Path, arns: Arns) -> Principals {
        let read = |role: Role| {
            let file = folder.join(format!("{role}.json"));
            let text = std::fs::read_to_string(&file)
                .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
            (role, text)
        };
        let texts = Role::ALL.into_iter().map(read).collect();
        Principals { arns, texts, pools: Mutex::default(), keys: Mutex::default() }
    }

    /// Gives an access key the policies of these roles for a pool. Machines of the pool get theirs
    /// by the keys of their metadata service.
    ///
    /// # Panics
    /// If a policy is one that the evaluator does not know exactly.
    pub(crate) fn grant(&self, key: &str, pool: &PolicyPool, roles: &[Role]) {
        locked(&self.pools).insert(pool.pool.clone(), pool.clone());
        let names: Vec<&str> = roles.iter().map(|role| role.name()).collect();
        let role = names.join("-");
        let mut context = Context::default();
        context.set("aws:userid", format!("AROA{}:test", role.to_ascii_uppercase()));
        let principal = self.principal(pool, roles, &role, "test", context);
        self.add(key, Arc::new(principal));
    }

    /// Makes a session of a role and returns its access key.
    pub(crate) fn start_session(
        &self,
        name: &str,
        session: &str,
        pool: &PolicyPool,
        roles: &[Role],
    ) -> String {
        locked(&self.pools).insert(pool.pool.clone(), pool.clone());
        let mut context = Context::default();
        context.set("aws:userid", format!("AROA{}:{session}", name.to_ascii_uppercase()));
        let key = format!("ASIA{:016X}", fastrand::u64(..));
        self.add(&key, Arc::new(self.principal(pool, roles, name, session, context)));
        key
    }

    /// Replaces the policies of a caller by one policy without placeholders.
    pub(crate) fn replace(&self, key: &str, policy: &str, ec2: &Ec2) -> Result<(), String> {
        let found = self.find(key, ec2).ok_or_else(|| format!("unknown access key: {key}"))?;
        let policies = vec![Policy::parse(policy)?];
        let (arn, context) = (found.arn.clone(), found.context.clone());
        self.add(key, Arc::new(Principal { arn, policies, context }));
        Ok(())
    }

    /// Gives a caller another access key.
    pub(crate) fn add(&self, key: &str, principal: Arc<Principal>) {
        locked(&self.keys).insert(key.to_owned(), principal);
    }

    /// The caller with this access key; `None` if it was given to no caller.
    pub(crate) fn find(&self, key: &str, ec2: &Ec2) -> Option<Arc<Principal>> {
        if let Some(found) = locked(&self.keys).get(key) {
            return Some(found.clone());
        }
        let (id, pool) = ec2.holder_of(key)?;
        let pool = locked(&self.pools).get(&pool).cloned()?;
        let mut context = Context::default();
        context.set("aws:userid", format!("AROAMACHINE:{id}"));
        context.set("ec2:SourceInstanceARN", self.arns.ec2("instance", &id));
        let role = pool.machine_role.clone();
        let principal = Arc::new(self.principal(&pool, &[Role::Machine], &role, &id, context));
        self.add(key, principal.clone());
        Some(principal)
    }

    fn principal(
        &self,
        pool: &PolicyPool,
        roles: &[Role],
        name: &str,
        session: &str,
        mut context: Context,
    ) -> Principal {
        context.set("aws:PrincipalArn", self.arns.role(name));
        context.set("aws:PrincipalAccount", ACCOUNT);
        let policy = |role: &Role| {
            let text = rendered(&self.texts[role], pool, self.arns.region());
            Policy::parse(&text)
                .unwrap_or_else(|problem| panic!("policy of {role}: {problem}\n{text}"))
        };
        Principal {
            arn: format!("arn:aws:sts::{ACCOUNT}:assumed-role/{name}/{session}"),
            policies: roles.iter().map(policy).collect(),
            context,
        }
    }
}

/// A policy with its placeholders replaced.
fn rendered(text: &str, pool: &PolicyPool, region: &str) -> String {
    text.replace("MACHINE-ROLE", &pool.machine_role)
        .replace("REGION", region)
        .replace("ACCOUNT", ACCOUNT)
        .replace("NAME", &pool.name)
        .replace("POOL", &pool.pool)
}
