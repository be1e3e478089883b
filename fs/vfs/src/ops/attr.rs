//! getattr and setattr.
//!
//! What always holds: under a grant the attributes here are answered; a change goes through the inode's order, so that a Publish under way cannot
//! bring old times back over it.

use crate::acquire::Mode;
use crate::inode::{Inode, without_suid};
use crate::types::{AttrReply, Caller, Error, HandleId, NodeId, Result, SetAttrArgs, SetTime};
use crate::vfs::Vfs;
use holdfast_meta_client::Use;
use holdfast_objstore_proto::meta::{Attr, AttrChange, Command, Kind, TimeNs};
use std::sync::Arc;

impl Vfs {
    pub async fn getattr(&self, node: NodeId, handle: Option<HandleId>) -> Result<AttrReply> {
        self.metrics().vfs_ops.inc();
        let inode = match handle {
            Some(h) => self.handle(h)?.inode.clone(),
            None => self.inode(node)?,
        };
        if inode.kind == Kind::File
            && let Some(reply) = self.own_attr(&inode)
        {
            return Ok(reply);
        }
        let s = self.session().await?;
        let _granting = self.granting();
        let (attr, grant) = s.meta.getattr(inode.ino).await.map_err(|e| self.meta_error(&s, e))?;
        self.granted(&s, &inode, &attr, grant, Use::Read);
        Ok(self.attr_reply(&inode, &attr))
    }

    /// What is held, without asking.
    fn own_attr(&self, inode: &Inode) -> Option<AttrReply> {
        let own = inode.state.lock().attr.clone()?;
        Some(self.attr_reply(inode, &own))
    }

    pub(crate) fn attr_reply(&self, inode: &Inode, committed: &Attr) -> AttrReply {
        let (attr, attr_valid) = self.attr_of(inode, committed);
        AttrReply { attr, attr_valid }
    }

    /// Changes what is named in `a`. The kernel has checked permissions; suid and sgid go with a change of owner, and with a truncation when asked.
    pub async fn setattr(&self, _caller: Caller, node: NodeId, a: SetAttrArgs) -> Result<AttrReply> {
        self.metrics().vfs_ops.inc();
        let inode = match a.handle {
            Some(h) => self.handle(h)?.inode.clone(),
            None => self.inode(node)?,
        };
        if let Some(size) = a.size {
            match inode.kind {
                Kind::File => self.truncate(&inode, size, a.kill_suidgid).await?,
                Kind::Dir => return Err(Error::IsDir),
                _ => return Err(Error::Invalid),
            }
        }
        let now = self.now();
        let time = |t: Option<SetTime>| t.map(|t| if let SetTime::At(ns) = t { ns } else { now });
        // The times of a truncation are its own unless others are named.
        let (atime, mtime) = (time(a.atime), time(a.mtime));
        let change =
            AttrChange { mode: a.mode.map(|m| m & 0o7777), uid: a.uid, gid: a.gid, atime, mtime, ctime: Some(a.ctime.unwrap_or(now)) };
        let asked = change.mode.is_some()
            || change.uid.is_some()
            || change.gid.is_some()
            || atime.is_some()
            || mtime.is_some()
            || a.ctime.is_some();
        if !asked {
            return self.getattr(node, a.handle).await;
        }
        let attr = self.change_attr(&inode, change).await?;
        Ok(self.attr_reply(&inode, &attr))
    }

    /// One SetAttr in the inode's order.
    pub(crate) async fn change_attr(&self, inode: &Arc<Inode>, mut change: AttrChange) -> Result<Attr> {
        let (mode, s) = (self.hold(inode, if inode.kind == Kind::File { Use::Write } else { Use::Read }).await?, self.session().await?);
        let _order = inode.order.lock().await;
        if (change.uid.is_some() || change.gid.is_some()) && change.mode.is_none() && inode.kind == Kind::File {
            let known = match mode {
                Mode::Through(attr) => Some(attr.mode),
                Mode::Held => inode.state.lock().attr.as_ref().map(|a| a.mode),
            };
            change.mode = known.filter(|m| without_suid(*m) != *m).map(without_suid);
        }
        let attr = self.submit_attr(&s, Command::SetAttr { ino: inode.ino, change }).await?;
        self.learned(&s, inode, &attr);
        self.overrule(inode, &change);
        Ok(attr)
    }

    /// What was set explicitly counts over own unpublished times and over a pending clearing of suid.
    fn overrule(&self, inode: &Inode, change: &AttrChange) {
        let mut st = inode.state.lock();
        if change.mode.is_some() {
            st.clear_suid = false;
        }
        let Some(own) = &mut st.attr else { return };
        let set = |own: &mut TimeNs, to: Option<TimeNs>| *own = to.unwrap_or(*own);
        set(&mut own.mtime, change.mtime);
        set(&mut own.ctime, change.ctime);
        own.mode = change.mode.unwrap_or(own.mode);
    }
}
