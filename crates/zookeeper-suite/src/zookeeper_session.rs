//! One session with a server, and which of its errors are definite.

use seatrial_runner::ClientError;
use seatrial_suite::{KeyText, StoreRefusal};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;
use zookeeper_client::{
    Acls, Client, CreateMode, CreateOptions, Error, MultiReadResult, MultiWriteError, Stat,
};

/// A znode as it was read or is to be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Znode {
    pub(crate) path: String,
    /// Its data; empty if it has none.
    pub(crate) text: String,
    /// Number of changes of its data; below 0 if there is no such znode.
    pub(crate) version: i32,
}

impl Znode {
    /// A znode that does not exist.
    pub(crate) fn missing(path: &str) -> Znode {
        Znode {
            path: path.to_owned(),
            text: String::new(),
            version: -1,
        }
    }

    /// Does it not exist?
    pub(crate) fn is_missing(&self) -> bool {
        self.version < 0
    }
}

impl KeyText for Znode {
    fn key(&self) -> &str {
        &self.path
    }

    fn text(&self) -> Option<&str> {
        Some(self.text.as_str()).filter(|text| !text.is_empty())
    }
}

/// The options of znodes that stay.
const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
/// The same with a number after the name, which the leader counts.
const NUMBERED: CreateOptions<'static> =
    CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
/// Numbered, and deleted when the session ends.
const OWNED: CreateOptions<'static> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());

/// The version that any znode has, in ZooKeeper's protocol.
const ANY_VERSION: i32 = -1;

/// A session on one connection, whose requests are answered in their order.
///
/// The crate would connect again and keep the session; after an error that leaves an outcome open this one is not used further
/// ([`ZooKeeperSession::is_broken`]). When it is dropped, the crate closes the session in the background.
pub(crate) struct ZooKeeperSession {
    client: Client,
    is_broken: bool,
}

/// Is it certain that the request changed nothing? These are the server's replies that say so, and arguments that were not sent.
/// A lost connection, an expired or moved session, and anything unexpected leave it open.
pub(crate) fn is_definite(error: &Error) -> bool {
    matches!(
        error,
        Error::NoNode
            | Error::NoAuth
            | Error::BadVersion
            | Error::NoChildrenForEphemerals
            | Error::NodeExists
            | Error::NotEmpty
            | Error::InvalidAcl
            | Error::NotReadOnly
            | Error::QuotaExceeded
            | Error::Throttled
            | Error::BadArguments(_)
    )
}

/// The refusal of a request that may change something.
pub(crate) fn of_write(error: &Error) -> StoreRefusal {
    if is_definite(error) {
        return StoreRefusal::failed(error);
    }
    StoreRefusal::unknown(error)
}

/// The refusal of a request that changes nothing.
pub(crate) fn of_read(error: &Error) -> StoreRefusal {
    StoreRefusal::failed(error)
}

impl ZooKeeperSession {
    /// Begins a session with this server within `limit`; the servers end it after `session` without contact.
    pub(crate) async fn open(
        address: SocketAddr,
        limit: Duration,
        session: Duration,
    ) -> Result<ZooKeeperSession, ClientError> {
        let connector = Client::connector()
            .with_session_timeout(session)
            .with_fail_eagerly();
        let address = address.to_string();
        let client = timeout(limit, connector.connect(&address)).await;
        let client = client.map_err(|_| "the server began no session in time")?;
        let client = client.map_err(|error| format!("no session: {error}"))?;
        Ok(ZooKeeperSession {
            client,
            is_broken: false,
        })
    }

    /// Was the connection lost, or is the session of no use any more?
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn note<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        self.is_broken |= result.as_ref().is_err_and(|error| !is_definite(error));
        result
    }

    /// Waits until the server has everything that was committed before: a transaction that changes nothing is logged by a
    /// majority, and executed after all before it.
    pub(crate) async fn commit_nothing(&mut self) -> Result<(), Error> {
        let mut writer = self.client.new_multi_writer();
        writer.add_check_version("/", ANY_VERSION)?;
        let result = writer.commit().await.map_err(Error::from);
        self.note(result).map(drop)
    }

    /// Waits until the server has everything that its leader had committed when it was asked, unless the server is the leader:
    /// it answers at once, and may not have executed yet what its followers have.
    pub(crate) async fn sync(&mut self) -> Result<(), Error> {
        let result = self.client.sync("/").await;
        self.note(result)
    }

    /// A znode; `None` if there is none.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Option<Znode>, Error> {
        let result = self.client.get_data(path).await;
        match self.note(result) {
            Ok((data, stat)) => Ok(Some(znode(path, &data, &stat))),
            Err(Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Several znodes in one request, in this order.
    pub(crate) async fn get_all(
        &mut self,
        paths: &[String],
    ) -> Result<Vec<Option<(Znode, Stat)>>, Error> {
        let mut reader = self.client.new_multi_reader();
        for path in paths {
            reader.add_get_data(path)?;
        }
        let result = reader.commit().await;
        let results = self.note(result)?;
        if results.len() != paths.len() {
            let reason = format!("{} results of {} reads", results.len(), paths.len());
            return Err(Error::UnexpectedError(reason));
        }
        let found = paths
            .iter()
            .zip(results)
            .map(|(path, result)| match result {
                MultiReadResult::Data { data, stat } => Ok(Some((znode(path, &data, &stat), stat))),
                MultiReadResult::Error { err: Error::NoNode } => Ok(None),
                MultiReadResult::Error { err } => Err(err),
                _ => Err(Error::UnexpectedError(format!("{path}: no data"))),
            });
        found.collect()
    }

    /// The names of a znode's children, and the last transaction that changed them; none if there is no such znode.
    pub(crate) async fn children(&mut self, path: &str) -> Result<(Vec<String>, i64), Error> {
        let result = self.client.get_children(path).await;
        match self.note(result) {
            Ok((children, stat)) => Ok((children, last_change(&stat))),
            Err(Error::NoNode) => Ok((Vec::new(), 0)),
            Err(error) => Err(error),
        }
    }

    /// Creates a znode; `false`: it exists.
    pub(crate) async fn create(&mut self, path: &str, text: &str) -> Result<bool, Error> {
        let result = self.client.create(path, text.as_bytes(), &PERSISTENT).await;
        match self.note(result) {
            Ok(_) => Ok(true),
            Err(Error::NodeExists) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates a znode with a number after its name.
    pub(crate) async fn create_numbered(&mut self, path: &str) -> Result<(), Error> {
        let result = self.client.create(path, &[], &NUMBERED).await;
        self.note(result).map(drop)
    }

    /// The same; the znode is deleted when this session ends. Returns its path, and the transaction that created it.
    pub(crate) async fn create_owned(&mut self, path: &str) -> Result<(String, i64), Error> {
        let result = self.client.create(path, &[], &OWNED).await;
        let (stat, number) = self.note(result)?;
        Ok((format!("{path}{number}"), stat.czxid))
    }

    /// Changes a znode's data, if it has this version (`None`: any); returns the transaction.
    pub(crate) async fn set(
        &mut self,
        path: &str,
        text: &str,
        version: Option<i32>,
    ) -> Result<i64, Error> {
        let result = self.client.set_data(path, text.as_bytes(), version).await;
        Ok(self.note(result)?.mzxid)
    }

    /// Deletes a znode; `false`: there is none.
    pub(crate) async fn delete(&mut self, path: &str) -> Result<bool, Error> {
        let result = self.client.delete(path, None).await;
        match self.note(result) {
            Ok(()) => Ok(true),
            Err(Error::NoNode) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes new data of some of these znodes, if all still have the versions that were read; `false`: one has another, and
    /// nothing was written.
    pub(crate) async fn commit(
        &mut self,
        read: &[Znode],
        new: &[(String, String)],
    ) -> Result<bool, Error> {
        let mut writer = self.client.new_multi_writer();
        for znode in read {
            match new.iter().find(|(path, _)| *path == znode.path) {
                Some((path, text)) => {
                    writer.add_set_data(path, text.as_bytes(), Some(znode.version))?;
                }
                None => writer.add_check_version(&znode.path, znode.version)?,
            }
        }
        let result = writer.commit().await;
        self.all_or_nothing(result)
    }

    /// Deletes all of these znodes; `false`: one is missing, and none was deleted.
    pub(crate) async fn delete_all(&mut self, paths: &[String]) -> Result<bool, Error> {
        let mut writer = self.client.new_multi_writer();
        for path in paths {
            writer.add_delete(path, None)?;
        }
        let result = writer.commit().await;
        self.all_or_nothing(result)
    }

    /// The result of a `multi`; `false`: a znode is missing or has another version, and nothing was done.
    fn all_or_nothing<T>(&mut self, result: Result<T, MultiWriteError>) -> Result<bool, Error> {
        match result.map_err(Error::from) {
            Ok(_) => Ok(true),
            Err(Error::BadVersion | Error::NoNode) => Ok(false),
            Err(error) => self.note(Err(error)),
        }
    }
}

fn znode(path: &str, data: &[u8], stat: &Stat) -> Znode {
    Znode {
        path: path.to_owned(),
        text: String::from_utf8_lossy(data).into_owned(),
        version: stat.version,
    }
}

/// The last transaction that changed the znode's data or its set of children.
pub(crate) fn last_change(stat: &Stat) -> i64 {
    stat.mzxid.max(stat.pzxid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replies_that_refuse_a_write_are_definite() {
        for error in [Error::BadVersion, Error::NodeExists, Error::Throttled] {
            assert!(matches!(of_write(&error), StoreRefusal::Failed(_)));
        }
        let open = [
            Error::ConnectionLoss,
            Error::SessionExpired,
            Error::SessionMoved,
            Error::ClientClosed,
            Error::Timeout,
            Error::UnexpectedErrorCode(-7),
            Error::UnexpectedError("no data".into()),
        ];
        for error in open {
            assert!(matches!(of_write(&error), StoreRefusal::Unknown(_)));
            assert!(matches!(of_read(&error), StoreRefusal::Failed(_)));
        }
    }

    #[test]
    fn data_are_numbers() {
        let znode = |text: &str| Znode {
            path: "/data/1".into(),
            text: text.into(),
            version: 0,
        };
        assert_eq!(znode("").number(7), Ok(7));
        assert_eq!(znode("-3").number(7), Ok(-3));
        assert_eq!(znode("").numbers(), Ok(Vec::new()));
        assert_eq!(znode("4,5").numbers(), Ok(vec![4, 5]));
        let error = znode("4,x").numbers().unwrap_err();
        assert_eq!(error, "/data/1: \"x\" is no number");
        assert!(znode("x").number(0).is_err());
    }
}
