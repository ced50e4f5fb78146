//! Is this the right cluster, new enough, and not an older copy of itself.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    AlarmAction, AlarmMember, AlarmType, Client, GetOptions, ResponseHeader, StatusResponse,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::endpoints::{Endpoints, Kind, jittered};
use super::errors::{is_denied, judge};
use super::{EtcdOptions, runtime};
use crate::Error;
use crate::engine::replicated::server::{Revision, ServerError};

/// A version of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EtcdVersion(pub u32, pub u32, pub u32);

/// Before it, a leader that had lost its office could end leases that were kept alive.
pub(super) const OLDEST: EtcdVersion = EtcdVersion(3, 5, 13);
/// Before it, a read could be stale after a member restarted, and permissions be circumvented.
const SOUND: EtcdVersion = EtcdVersion(3, 5, 28);

/// How much longer than for the first answer the others are waited for.
const GRACE: Duration = Duration::from_millis(300);
/// Pause while no member answers.
const PAUSE: Duration = Duration::from_millis(200);

impl EtcdVersion {
    fn parse(text: &str) -> Option<Self> {
        let release = text.split(['-', '+']).next()?;
        let mut numbers = release.split('.').map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Self(next()?, next()?, next()?))
    }
}

impl std::fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Something that etcd wants an administrator to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// The database of a member has reached its quota: only deletions are taken.
    NoSpace {
        /// The member.
        member: u64,
    },
    /// The members disagree about the contents.
    Corrupt {
        /// The member.
        member: u64,
    },
}

/// What a cluster says about itself. etcd tells some of it to administrators only, depending on
/// its version; what it does not tell this user is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdFacts {
    /// Its id.
    pub cluster: u64,
    /// The newest commit that this client has seen.
    pub revision: Revision,
    /// The version of the member that was asked.
    pub version: Option<String>,
    /// The id of the leader; also `None` during an election.
    pub leader: Option<u64>,
    /// Members, learners included.
    pub members: Option<usize>,
    /// Bytes that the database occupies on disk.
    pub database_bytes: Option<u64>,
    /// Bytes of it that are in use. The rest is given back by defragmentation.
    pub used_bytes: Option<u64>,
    /// Bytes that the database may occupy; etcd tells it from version 3.6 on.
    pub quota_bytes: Option<u64>,
    /// What an administrator must look at.
    pub alarms: Option<Vec<Alarm>>,
}

/// Who a member says it is.
pub(super) struct Member {
    cluster: u64,
    /// `None` if it tells that to administrators only, which no outdated version does.
    version: Option<String>,
}

/// What a member must be like.
pub(super) struct Rules {
    expected: Option<u64>,
    oldest: EtcdVersion,
    allow_old: bool,
    probe: Vec<u8>,
}

impl Rules {
    pub(super) fn new(options: &EtcdOptions) -> Self {
        Self {
            expected: options.expected_cluster,
            oldest: options.oldest,
            allow_old: options.allow_old,
            probe: options.probe.clone(),
        }
    }

    /// Asks a member who it is.
    pub(super) async fn identify(
        &self,
        client: Client,
        limit: Instant,
    ) -> Result<Member, ServerError> {
        let probe = self.probe.clone();
        match timeout_at(limit, identify(client, probe)).await {
            Ok(Ok(member)) => Ok(member),
            Ok(Err(error)) => Err(judge(&error).without_effect()),
            Err(_) => Err(ServerError::Unavailable("no answer in time".into())),
        }
    }

    /// Whether a member may be used; otherwise why not, and what to do.
    pub(super) fn check(&self, member: &Member, known: Option<u64>) -> Result<(), ServerError> {
        if let Some(expected) = known.or(self.expected)
            && member.cluster != expected
        {
            return Err(ServerError::Refused(other_cluster(
                expected,
                member.cluster,
            )));
        }
        let Some(version) = member.version.as_ref().filter(|_| !self.allow_old) else {
            return Ok(());
        };
        match EtcdVersion::parse(version) {
            Some(found) if found >= self.oldest => Ok(()),
            _ => Err(ServerError::Refused(format!(
                "the member has etcd {version}, which can end a session that is alive; upgrade it \
                 to {} or later",
                self.oldest
            ))),
        }
    }
}

async fn identify(mut client: Client, probe: Vec<u8>) -> Result<Member, etcd_client::Error> {
    let header = |header: Option<&ResponseHeader>| header.map_or(0, ResponseHeader::cluster_id);
    match client.status().await {
        Ok(status) => Ok(Member {
            cluster: header(status.header()),
            version: Some(status.version().to_owned()),
        }),
        Err(error) if is_denied(&error) => {
            let options = GetOptions::new().with_count_only().with_serializable();
            let answer = client.get(probe, Some(options)).await?;
            Ok(Member {
                cluster: header(answer.header()),
                version: None,
            })
        }
        Err(error) => Err(error),
    }
}

/// Verifies every member that answers; at least one must.
///
/// # Errors
/// [`Error::Refused`] or [`Error::Unavailable`].
pub(super) async fn verify(endpoints: &Arc<Endpoints>, options: &EtcdOptions) -> Result<(), Error> {
    let deadline = runtime::deadline(options.connect_patience);
    let rules = Rules::new(options);
    let mut known = None;
    let mut oldest = None;
    for (at, member) in first_answers(endpoints, options, deadline).await? {
        rules.check(&member, known).map_err(|error| {
            let url = endpoints.all()[at].url();
            Error::Refused(format!("{url}: {error}"))
        })?;
        known = Some(member.cluster);
        endpoints.prefer(at);
        let version = member.version.as_deref().and_then(EtcdVersion::parse);
        oldest = [oldest, version].into_iter().flatten().min();
    }
    endpoints.adopt(known.unwrap_or(0));
    if let Some(oldest) = oldest.filter(|oldest| *oldest < SOUND) {
        tracing::warn!(
            "etcd {oldest} can answer with outdated values after a restart; upgrade it to {SOUND} \
             or later"
        );
    }
    check_revision(endpoints, options, deadline).await
}

/// The members that answer soon after the first one has.
async fn first_answers(
    endpoints: &Arc<Endpoints>,
    options: &EtcdOptions,
    deadline: Instant,
) -> Result<Vec<(usize, Member)>, Error> {
    let share = (options.connect_patience / 3).min(2 * options.connect_timeout);
    loop {
        let mut limit = deadline.min(Instant::now() + share);
        // All at once: one that hangs must not delay the others.
        let (sender, mut receiver) = mpsc::unbounded_channel();
        for at in 0..endpoints.all().len() {
            let (endpoints, sender) = (Arc::clone(endpoints), sender.clone());
            tokio::spawn(async move {
                let _ = sender.send((at, endpoints.identify(at, limit).await));
            });
        }
        drop(sender);
        let (mut answers, mut reasons) = (Vec::new(), Vec::new());
        while let Ok(Some((at, answer))) = timeout_at(limit, receiver.recv()).await {
            match answer {
                Ok(member) => {
                    answers.push((at, member));
                    limit = limit.min(Instant::now() + GRACE);
                }
                Err(ServerError::Refused(reason)) => {
                    let url = endpoints.all()[at].url();
                    return Err(Error::Refused(format!("{url}: {reason}")));
                }
                Err(error) => reasons.push(format!("{}: {error}", endpoints.all()[at].url())),
            }
        }
        if !answers.is_empty() {
            return Ok(answers);
        }
        let pause = jittered(PAUSE);
        if Instant::now() + pause >= deadline {
            return Err(Error::Unavailable(reasons.join("; ")));
        }
        sleep(pause).await;
    }
}

/// Refuses a cluster that has not reached a commit which was seen of it.
async fn check_revision(
    endpoints: &Endpoints,
    options: &EtcdOptions,
    deadline: Instant,
) -> Result<(), Error> {
    let answer = endpoints
        .call(deadline, Kind::Read, |mut attempt| {
            let key = options.probe.clone();
            async move {
                let count = GetOptions::new().with_count_only();
                attempt.client.get(key, Some(count)).await
            }
        })
        .await
        .map_err(|error| match error {
            ServerError::Refused(reason) => Error::Refused(reason),
            other => Error::Unavailable(other.to_string()),
        })?;
    match endpoints.observe(answer.header(), options.last_revision) {
        Ok(_) => Ok(()),
        Err(ServerError::Unknown(fault)) => Err(Error::Refused(fault)),
        Err(other) => Err(Error::Unavailable(other.to_string())),
    }
}

/// Asks for everything that [`EtcdFacts`] has.
pub(super) async fn facts(
    endpoints: &Endpoints,
    deadline: Instant,
) -> Result<EtcdFacts, ServerError> {
    let status = told(status(endpoints, deadline).await)?;
    let members = endpoints
        .call(deadline, Kind::Read, |mut attempt| async move {
            attempt.client.member_list().await
        })
        .await;
    let bytes = |count: i64| u64::try_from(count).unwrap_or(0);
    let fact = |fact: fn(&StatusResponse) -> i64| status.as_ref().map(fact).map(bytes);
    let leader = status.as_ref().map(StatusResponse::leader);
    Ok(EtcdFacts {
        cluster: endpoints.cluster(),
        revision: endpoints.newest(),
        version: status.as_ref().map(|status| status.version().to_owned()),
        leader: leader.filter(|leader| *leader != 0),
        members: told(members)?.map(|list| list.members().len()),
        database_bytes: fact(StatusResponse::db_size),
        used_bytes: fact(StatusResponse::raft_used_db_size),
        quota_bytes: fact(StatusResponse::db_size_quota).filter(|quota| *quota != 0),
        alarms: told(alarms(endpoints, deadline).await)?,
    })
}

/// `None` for what this user may not know.
fn told<T>(answer: Result<T, ServerError>) -> Result<Option<T>, ServerError> {
    match answer {
        Ok(fact) => Ok(Some(fact)),
        Err(ServerError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn status(endpoints: &Endpoints, deadline: Instant) -> Result<StatusResponse, ServerError> {
    endpoints
        .call(deadline, Kind::Read, |mut attempt| async move {
            attempt.client.status().await
        })
        .await
}

/// The alarms that are raised.
pub(super) async fn alarms(
    endpoints: &Endpoints,
    deadline: Instant,
) -> Result<Vec<Alarm>, ServerError> {
    let answer = endpoints
        .call(deadline, Kind::Read, |mut attempt| async move {
            let (action, all) = (AlarmAction::Get, AlarmType::None);
            attempt.client.alarm(action, all, None).await
        })
        .await?;
    let alarm = |raised: &AlarmMember| {
        let member = raised.member_id();
        match raised.alarm() {
            AlarmType::Nospace => Some(Alarm::NoSpace { member }),
            AlarmType::Corrupt => Some(Alarm::Corrupt { member }),
            AlarmType::None => None,
        }
    };
    Ok(answer.alarms().iter().filter_map(alarm).collect())
}

pub(super) fn other_cluster(expected: u64, found: u64) -> String {
    format!(
        "this is the etcd cluster {found:x}, and the store belongs to {expected:x}; correct the \
         addresses, or restore the cluster that the store was made with"
    )
}

pub(super) fn older_copy(expected: Revision, found: Revision) -> String {
    format!(
        "the etcd cluster is at revision {found}, and was at {expected} before: it was restored \
         from a backup, and what the store did since is missing in it; restore it with a higher \
         revision ('etcdutl snapshot restore --bump-revision') after 'shale fsck'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_number() {
        let parsed = |text| EtcdVersion::parse(text);
        assert_eq!(parsed("3.5.30"), Some(EtcdVersion(3, 5, 30)));
        assert_eq!(parsed("3.6.0-rc.1"), Some(EtcdVersion(3, 6, 0)));
        assert_eq!(parsed("3.5"), None);
        assert_eq!(parsed("not decided"), None);
        assert!(parsed("3.5.9") < Some(OLDEST));
        assert!(parsed("3.10.0") > Some(SOUND));
    }
}
