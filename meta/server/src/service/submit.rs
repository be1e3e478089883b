//! A change: what it touches is taken back from foreign holders, then it goes through the log.
//!
//! What always holds: from the moment it is proposed until it is applied, nobody is granted what it touches, and no other change
//! goes by the same name in the same directory; so what it touches is what was recalled. While it waits for recalls
//! its inodes are granted to nobody new, but it holds up nobody. What a path leads to may differ by the time a command is applied;
//! what was missed is recalled before the change is answered.
//! What it leaves out: what a command touches (`meta/core`'s `touches`).

use super::core::{Core, state_error};
use super::grants::{Blocked, Marked, Plan};
use super::session::{Number, Session};
use super::work::{Leaves, is_system_name};
use crate::state::inline_of;
use holdfast_meta_core::lease::{Ask, Asker};
use holdfast_meta_core::{Touch, TouchKind, touches};
use holdfast_objstore_proto::InodeId;
use holdfast_objstore_proto::meta::{Command, MetaError, MetaResult, Reply, Request};
use std::sync::Arc;

/// Folds touches into a plan: what is changed need not be asked for reading too.
fn plan(touches: Vec<Touch>) -> Plan {
    let mut plan = Plan::default();
    for t in touches {
        match t.kind {
            TouchKind::Read => drop(plan.reads.insert(t.ino)),
            TouchKind::ChangeFile => drop(plan.changes.insert(t.ino)),
            TouchKind::ChangeDir { name } => {
                plan.changes.insert(t.ino);
                plan.names.insert((t.ino, name));
            }
        }
    }
    plan.reads.retain(|i| !plan.changes.contains(i));
    plan
}

/// Inodes that were changed when the command was applied and that were not marked for it.
fn missed(touched: Vec<Touch>, marked: &Marked) -> Vec<InodeId> {
    plan(touched).changes.into_iter().filter(|i| marked.inos.binary_search(i).is_err()).collect()
}

/// Inodes marked while a change waits; unmarked when it is given up.
struct Pending<'a> {
    core: &'a Core,
    inos: Vec<InodeId>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.inos.is_empty() {
            self.core.grants.lock().give_up(&mut self.inos);
        }
    }
}

/// A change in the log's hands; unmarked when it is applied.
struct Proposed<'a> {
    core: &'a Core,
    marked: Marked,
}

impl Drop for Proposed<'_> {
    fn drop(&mut self) {
        self.core.grants.lock().applied(&self.marked);
    }
}

impl Core {
    /// Runs a session's command. Up to its first wait it runs in the caller's turn, so commands keep the order of the calls.
    pub(crate) async fn submit(self: Arc<Self>, session: Arc<Session>, command: Command) -> MetaResult<Reply> {
        if is_services(&command) {
            return Err(MetaError::NotPermitted);
        }
        if let Command::CreateBucket { name, .. } | Command::DeleteBucket { name } = &command
            && is_system_name(name)
        {
            return Err(MetaError::Invalid("a bucket's name does not begin with a dot".into()));
        }
        if self.tight() && grows(&command) {
            return Err(MetaError::NoSpace);
        }
        if matches!(command, Command::GrantStripes { .. }) {
            session.moved_all();
        }
        let _arriving = self.state.arriving(inline_of(&command));
        let mut pending = Pending { core: &self, inos: Vec::new() };
        let marked = loop {
            self.admits(&session)?;
            self.state.room().await.map_err(state_error)?;
            match self.mark(&session, &command, &mut pending.inos)? {
                Ok(marked) => {
                    session.moved(&marked.inos);
                    break Proposed { core: &self, marked };
                }
                Err(blocked) => self.unblock(blocked).await,
            }
        };
        let number = loop {
            match session.number() {
                Ok(n) => break n,
                Err(waiting) => drop(waiting.await),
            }
        };
        let left = leaves(&command);
        let Number { seq, acked } = number;
        let watch = goes_by_path(&command).then(|| self.state.watch(session.id, seq));
        let reply = self.propose(&Request { session: session.id, epoch: session.epoch, seq, acked, command }).await;
        session.answered(seq);
        session.moved(&marked.marked.inos);
        let missed = watch.map_or_else(Vec::new, |w| missed(w.touched(), &marked.marked));
        drop(marked);
        let reply = reply?;
        self.work.after(&reply, left);
        for ino in missed {
            self.take_back(&session, ino).await?;
        }
        Ok(reply)
    }

    /// Recalls a foreign hold on what turned out to have changed, before the change is answered.
    async fn take_back(self: &Arc<Self>, session: &Session, ino: InodeId) -> MetaResult<()> {
        let asker = Asker { session: session.id, caching: false };
        loop {
            self.state.check().map_err(state_error)?;
            let asked = self.grants.lock().ask(ino, asker, Ask::Change, self.now_ns());
            match asked {
                Ok(_) => return Ok(()),
                Err(blocked) => self.unblock(blocked).await,
            }
        }
    }

    /// Marks what a command touches, or says what it waits for. What it touches cannot change in between: the state stands still.
    fn mark(&self, session: &Session, command: &Command, pending: &mut Vec<InodeId>) -> MetaResult<Result<Marked, Blocked>> {
        let now = self.now_ns();
        self.view(|kv| {
            let plan = plan(touches(kv, command)?);
            Ok(Ok(self.grants.lock().admit(&plan, session.id, pending, now)))
        })
    }
}

/// Commands that only the service itself sends, or that have calls of their own.
fn is_services(command: &Command) -> bool {
    matches!(
        command,
        Command::OpenSession { .. }
            | Command::CloseSession
            | Command::Evict { .. }
            | Command::ReapOrphan { .. }
            | Command::ForgetStripes { .. }
            | Command::Pack(_)
            | Command::Relocate(_)
            | Command::Restage { .. }
            | Command::RaiseIncarnation { .. }
    )
}

/// Commands that make the state grow and may be refused without more ado. A Publish is not among them: its number must be used up, and
/// its data has met the OSDs' own limits.
fn grows(command: &Command) -> bool {
    matches!(
        command,
        Command::Create { .. }
            | Command::Link { .. }
            | Command::CreateBucket { .. }
            | Command::PutObject(_)
            | Command::CreateUpload { .. }
            | Command::PutPart { .. }
            | Command::CompleteUpload { .. }
    )
}

/// What a command leaves to background work.
fn leaves(command: &Command) -> Leaves {
    match command {
        Command::Truncate { .. } | Command::DeleteObject { .. } | Command::CompleteUpload { .. } | Command::AbortUpload { .. } => {
            Leaves::Orphans
        }
        Command::Publish(_) | Command::PutObject(_) | Command::PutPart { .. } | Command::SwapStripe { .. } => Leaves::Stripes,
        _ => Leaves::Nothing,
    }
}

/// Whether what a command touches is found by a path: another change of a directory above may alter that up to the last moment.
fn goes_by_path(command: &Command) -> bool {
    matches!(command, Command::PutObject(_) | Command::DeleteObject { .. } | Command::CompleteUpload { .. })
}
