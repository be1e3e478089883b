//! A client that does what the S3 door does, without HTTP: PUT (also in parts), GET, DELETE over `Meta` and `Objects`.

use super::{any_path, think};
use crate::cluster::name;
use crate::content::{self, CELL};
use crate::history::{Answer, Op};
use crate::plan::PATHS;
use crate::recorder::Recorder;
use bytes::Bytes;
use holdfast_meta_client::ids::IdPool;
use holdfast_meta_client::{Meta, MetaError, MetaResult};
use holdfast_objstore_base::sim::Rng;
use holdfast_objstore_client::{Error as ObjectsError, Objects, StripeWrite};
use holdfast_objstore_proto::meta::{Bucket, Command, Extent, Inline, Owner, PutObject, Reply};
use holdfast_objstore_proto::shard::Hint;
use holdfast_objstore_proto::stripe::INLINE_BYTES_MAX;
use holdfast_objstore_proto::{InodeId, StripeId, StripeMeta};
use std::sync::Arc;

pub struct Gateway {
    number: usize,
    meta: Arc<dyn Meta>,
    ids: IdPool,
    objects: Arc<dyn Objects>,
    bucket: Bucket,
    recorder: Arc<Recorder>,
    rng: Rng,
}

const OWNER: Owner = Owner { uid: 0, gid: 0 };

fn refusal(e: MetaError) -> Answer {
    match e {
        MetaError::NotFound | MetaError::Stale => Answer::NotFound,
        MetaError::Evicted | MetaError::Retry(_) | MetaError::Failed(_) => Answer::Unsure(e.to_string()),
        e => Answer::Refused(e.to_string()),
    }
}

impl Gateway {
    pub async fn new(
        number: usize,
        meta: Arc<dyn Meta>,
        objects: Arc<dyn Objects>,
        recorder: Arc<Recorder>,
        seed: u64,
    ) -> Result<Self, String> {
        let bucket = meta.bucket(name("home")).await.map_err(|e| e.to_string())?;
        Ok(Self { number, ids: IdPool::new(meta.clone()), meta, objects, bucket, recorder, rng: Rng::new(seed) })
    }

    pub async fn run(mut self, calls: u64) {
        for _ in 0..calls {
            let path = any_path(&mut self.rng);
            match self.rng.below(10) {
                0..4 => self.put(path).await,
                4..8 => self.get(path).await,
                _ => self.delete(path).await,
            }
            think(&mut self.rng).await;
        }
    }

    async fn put(&mut self, path: usize) {
        let Ok(ino) = self.ids.inode().await else { return };
        let cells = if self.rng.below(4) == 0 { 130 + self.rng.below(200) } else { self.rng.below(40) } as u32;
        let id = self.recorder.write_id();
        let call = self.recorder.call(self.number, Op::Put { path, ino, cells, id });
        let answer = match cells >= 2 && self.rng.below(4) == 0 {
            true => self.try_parts(path, ino, cells, id).await,
            false => self.try_put(path, ino, cells, id).await,
        };
        self.recorder.answer(call, answer);
    }

    /// Writes `cells` cells of the object from cell `at` as one stripe and makes it stable.
    async fn store(&self, ino: InodeId, at: u32, cells: u32, id: u32) -> Result<(Vec<Arc<StripeMeta>>, Vec<Extent>), String> {
        let stripe = self.ids.stripe().await.map_err(|e| e.to_string())?;
        let stable = self.write(stripe, ino, content::make(id, at, cells)).await.map_err(|e| e.to_string())?;
        Ok((stable, vec![Extent { offset: 0, len: cells * CELL as u32, stripe, stripe_offset: 0 }]))
    }

    async fn write(&self, id: StripeId, inode: InodeId, data: Bytes) -> Result<Vec<Arc<StripeMeta>>, ObjectsError> {
        let (session, epoch) = self.meta.session();
        let hint = Hint { bucket: self.bucket.id.0, inode, chunk: 0 };
        let written = self
            .objects
            .write(StripeWrite { id, code: self.bucket.code, data: vec![data], session, epoch, hint, background: false })
            .await?;
        self.objects.flush(vec![written]).await
    }

    async fn try_put(&mut self, path: usize, ino: InodeId, cells: u32, id: u32) -> Answer {
        let (mut stripes, mut inline, mut extents) = (Vec::new(), Vec::new(), Vec::new());
        if cells > 0 {
            let stripe = match self.ids.stripe().await {
                Ok(id) => id,
                Err(e) => return Answer::Refused(e.to_string()),
            };
            let data = content::make(id, 0, cells);
            if data.len() <= INLINE_BYTES_MAX && self.meta.inline_room(data.len()) {
                inline.push(Inline { stripe, data });
            } else {
                match self.write(stripe, ino, data).await {
                    Ok(stable) => stripes = stable,
                    Err(e) => return Answer::Refused(e.to_string()),
                }
            }
            extents.push(Extent { offset: 0, len: cells * CELL as u32, stripe, stripe_offset: 0 });
        }
        let put = PutObject {
            bucket: self.bucket.id,
            key: name(PATHS[path]),
            ino,
            size: u64::from(cells) * CELL as u64,
            extents,
            stripes: stripes.clone(),
            inline,
            info: Default::default(),
            owner: OWNER,
            condition: Default::default(),
            copy_from: None,
        };
        match self.meta.submit(Command::PutObject(put)).await {
            Ok(_) => Answer::Done,
            Err(e) => self.refused(e, stripes).await,
        }
    }

    async fn refused(&self, e: MetaError, stripes: Vec<Arc<StripeMeta>>) -> Answer {
        let answer = refusal(e);
        if matches!(answer, Answer::Refused(_) | Answer::NotFound) {
            // Nothing refers to it; what cannot be deleted now, reconciling finds.
            let _ = self.objects.delete(stripes).await;
        }
        answer
    }

    /// The same in two parts, completed or given up.
    async fn try_parts(&mut self, path: usize, ino: InodeId, cells: u32, id: u32) -> Answer {
        let (bucket, key) = (self.bucket.id, name(PATHS[path]));
        let upload = match self.meta.submit(Command::CreateUpload { bucket, key, info: Default::default() }).await {
            Ok(Reply::Upload(id)) => id,
            Ok(other) => return Answer::Wrong(format!("{other:?}")),
            // An upload is no object: nothing changed that a reader could see.
            Err(e) => return Answer::Refused(e.to_string()),
        };
        let half = 1 + self.rng.below(u64::from(cells) - 1) as u32;
        let mut parts = Vec::new();
        for (number, at, cells) in [(1, 0, half), (2, half, cells - half)] {
            let (stripes, extents) = match self.store(ino, at, cells, id).await {
                Ok(stored) => stored,
                Err(why) => return Answer::Refused(why),
            };
            let (size, etag) = (u64::from(cells) * CELL as u64, format!("{id}-{number}"));
            parts.push((number, etag.clone()));
            let part = Command::PutPart {
                bucket,
                upload,
                number,
                size,
                etag,
                checksums: Vec::new(),
                extents,
                stripes: stripes.clone(),
                inline: Vec::new(),
            };
            if let Err(e) = self.meta.submit(part).await {
                let why = e.to_string();
                self.refused(e, stripes).await;
                return Answer::Refused(why);
            }
        }
        if self.rng.below(4) == 0 {
            let given_up = self.meta.submit(Command::AbortUpload { bucket, upload }).await;
            return Answer::Refused(format!("given up: {given_up:?}"));
        }
        let command = Command::CompleteUpload {
            bucket,
            upload,
            ino,
            parts,
            info: Default::default(),
            owner: OWNER,
            part_bytes_min: 0,
            condition: Default::default(),
        };
        match self.meta.submit(command).await {
            Ok(_) => Answer::Done,
            Err(e) => refusal(e),
        }
    }

    async fn delete(&mut self, path: usize) {
        let call = self.recorder.call(self.number, Op::Delete { path });
        let command = Command::DeleteObject { bucket: self.bucket.id, key: name(PATHS[path]), condition: Default::default() };
        let answer = match self.meta.submit(command).await {
            Ok(Reply::Removed { ino }) => Answer::Inode(ino),
            Ok(other) => Answer::Wrong(format!("{other:?}")),
            Err(e) => refusal(e),
        };
        self.recorder.answer(call, answer);
    }

    /// As a GET: the name, then the inode's bytes, held open.
    async fn get(&mut self, path: usize) {
        let call = self.recorder.call(self.number, Op::Lookup { path });
        let attr = match self.meta.resolve(self.bucket.id, name(PATHS[path])).await {
            Ok((attr, _)) => attr,
            Err(MetaError::NotFound) => return self.recorder.answer(call, Answer::Inode(None)),
            Err(e) => return self.recorder.answer(call, refusal(e)),
        };
        self.recorder.answer(call, Answer::Inode(Some(attr.ino)));
        if self.meta.opened(attr.ino).await.is_err() {
            return;
        }
        let cells = (attr.size / CELL as u64) as u32;
        let call = self.recorder.call(self.number, Op::Read { ino: attr.ino, at: 0, cells });
        let answer = match self.bytes(attr.ino, attr.size).await {
            Ok(data) => content::read(0, &data).map_or_else(Answer::Wrong, Answer::Cells),
            Err(why) => Answer::Unsure(why),
        };
        self.meta.closed(attr.ino);
        self.recorder.answer(call, answer);
    }

    /// The first `size` bytes of an inode, as far as it still reaches.
    async fn bytes(&self, ino: InodeId, size: u64) -> Result<Vec<u8>, String> {
        let (map, size) = self.map(ino, size).await.map_err(|e| e.to_string())?;
        let mut out = vec![0; size as usize];
        for e in map {
            let to = (e.offset + u64::from(e.len)).min(size);
            if e.offset >= to {
                continue;
            }
            let len = (to - e.offset) as u32;
            let range = e.stripe_offset..e.stripe_offset + len;
            let pieces = match &e.inline {
                Some(bytes) => vec![bytes.slice(range.start as usize..range.end as usize)],
                None => self.objects.read(&e.stripe, range).await.map_err(|e| e.to_string())?,
            };
            out[e.offset as usize..to as usize].copy_from_slice(&pieces.concat());
        }
        Ok(out)
    }

    async fn map(&self, ino: InodeId, size: u64) -> MetaResult<(Vec<holdfast_objstore_proto::meta::MappedExtent>, u64)> {
        let map = self.meta.extents(ino, 0..1).await?;
        // Asked after the map: what was cut off meanwhile is not a hole.
        let now = self.meta.getattr(ino).await?.0.size;
        Ok((map, size.min(now)))
    }
}
