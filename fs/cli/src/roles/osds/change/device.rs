//! Replacing and adding OSDs on block devices.
//!
//! What always holds: a device is looked at as at a first start, and formatted only when whoever asked has said yes; the cluster file names
//! the new volume before it is made. What it leaves out: making an OSD anew on a device that serves: name another device for that.

use super::super::super::data::Running;
use crate::devices;
use crate::layout::{Layout, OsdPlace};
use anyhow::{Context, ensure};
use holdfast_objstore_base::real::device::is_block_device;
use holdfast_objstore_base::real::probe::{Contents, contents};
use holdfast_objstore_proto::OsdId;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether the OSDs of a cluster lie on block devices.
pub fn on_devices(layout: &Layout) -> bool {
    layout.places.iter().any(|p| p.device.is_some())
}

impl Running {
    pub(super) async fn replace_device(self: &Arc<Self>, id: OsdId, device: Option<PathBuf>, format: bool) -> anyhow::Result<String> {
        let (set, state) = (&self.osds, self.known(id)?);
        let place = set.layout().place(id).with_context(|| format!("{id} has no place"))?.clone();
        ensure!(
            device.is_some() || state.failure().is_some() && is_block_device(&state.path),
            "name the device to replace {id} with; nothing was changed"
        );
        let path = device.unwrap_or_else(|| state.path.clone());
        let in_place = path == state.path;
        if in_place {
            set.disk.detach_device(&path);
        }
        let checked = self.check_device(&path, format).await;
        if in_place && checked.is_err() {
            set.disk.attach_lost(&path);
        }
        checked?;
        if state.failure().is_none() || still_there(&place, &state.path).await {
            self.refuse_needed(&state).await?;
        }
        self.take_out(&state, in_place).await?;
        if !in_place {
            set.disk.detach_device(&state.path);
        }
        let made = self.make(on(place, &path)?, None, path).await?;
        Ok(format!("{id} is new on {} and is being filled from the others: holdfast status shows how far it is", made.display()))
    }

    pub(super) async fn add_device(self: &Arc<Self>, path: PathBuf, format: bool) -> anyhow::Result<String> {
        let layout = self.osds.layout();
        let id = OsdId(layout.next_osd());
        ensure!(layout.places.len() < 64, "there are 64 OSDs already, the most for one process");
        self.check_device(&path, format).await?;
        let first = layout.places.first().context("a cluster has OSDs")?.clone();
        let made = self.make(on(OsdPlace { id: id.0, ..first }, &path)?, None, path).await?;
        Ok(format!("{id} is in service on {}", made.display()))
    }

    /// Refuses a device that must not be formatted, or that nobody said yes to. Not on the data thread: devices may be slow.
    async fn check_device(&self, path: &Path, format: bool) -> anyhow::Result<()> {
        let (disk, device, ours) = (self.osds.disk.clone(), path.to_path_buf(), Some(self.layout.cluster));
        tokio::task::spawn_blocking(move || devices::refuse_used(&disk, &device, ours))
            .await
            .context("looking at the device was cut short")??;
        ensure!(format, "{} would be formatted: say --format-devices; nothing was changed", path.display());
        Ok(())
    }

    /// Makes the volume that a place names, if it lies on a device.
    pub(super) async fn format_device(&self, place: &OsdPlace, path: &Path) -> anyhow::Result<()> {
        let Some(id) = place.device.as_deref().and_then(|d| u128::from_str_radix(d, 16).ok()) else { return Ok(()) };
        let (disk, path) = (self.osds.disk.clone(), path.to_path_buf());
        tokio::task::spawn_blocking(move || disk.format_device(&path, id)).await.context("formatting was cut short")??;
        Ok(())
    }
}

/// Whether the volume of a place may still be on the device at `path`. One that cannot be read may have it.
async fn still_there(place: &OsdPlace, path: &Path) -> bool {
    let (id, device) = (place.device.clone(), path.to_path_buf());
    let look = tokio::task::spawn_blocking(move || match contents(&device) {
        Ok(Contents::Volume(found)) => id == Some(format!("{found:032x}")),
        Ok(_) => false,
        Err(_) => is_block_device(&device),
    });
    !matches!(tokio::time::timeout(super::STOPPING, look).await, Ok(Ok(false)))
}

/// The place on another device, with a volume of its own.
fn on(place: OsdPlace, path: &Path) -> anyhow::Result<OsdPlace> {
    let path = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_string();
    Ok(OsdPlace { path, device: Some(devices::new_id()), ..place })
}
