//! `holdfast up`: looks at everything, then locks, formats or recovers, serves until a signal, and ends in order.
//!
//! What always holds: nothing is written before everything that can be refused has been looked at.

use crate::args::Up;
use crate::layout::{self, Layout, State};
use crate::roles::{control, data, format, gateway, storage};
use crate::{admin, credentials, devices, lock, notify};
use anyhow::{Context, bail};
use holdfast_fs_fuse::MountOptions;
use holdfast_objstore_base::disk::Disk;
use holdfast_objstore_base::real::{self, RealDisk};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Between two looks whether an OSD hangs.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// Everything a start needs, checked.
struct Prepared {
    layout: Layout,
    mount: Option<MountOptions>,
    s3: Option<TcpListener>,
}

pub fn run(args: Up) -> anyhow::Result<()> {
    raise_open_files();
    let disk = RealDisk::new();
    let p = prepare(&args, &disk)?;
    let home = p.layout.home().to_path_buf();
    if p.layout.fresh && p.layout.places.iter().any(|o| o.device.is_some()) {
        devices::ask(&p.layout, args.format_devices)?;
    }
    let locks = lock_all(&p.layout, &disk)?;
    let first = p.layout.fresh;
    if first {
        format::format(&p.layout, &disk)?;
    }
    let keys = credentials::load(&disk, &p.layout.credentials())?;
    let known: Vec<&Path> = p.layout.dirs.iter().map(PathBuf::as_path).filter(|d| matches!(layout::read(&disk, d), Ok(Some(_)))).collect();
    credentials::spread(&disk, &p.layout.credentials(), &known)?;
    credentials::warn_if_shared(&p.layout.credentials());
    if first {
        say(&format!("credentials: {} (profile default)", p.layout.credentials().display()));
    } else {
        // Folders may have moved since.
        p.layout.write(&disk, State::Ready)?;
        storage::finish_forming(&p.layout, &disk)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(serve(p, Arc::new(disk), keys, args.memory, args.accept_stale, args.bucket));
    admin::socket::remove(&home);
    drop(locks);
    ended
}

fn prepare(args: &Up, disk: &RealDisk) -> anyhow::Result<Prepared> {
    let mount = args.mount.as_ref().map(|point| mount_options(args, point)).transpose()?;
    let mut random = [0; 16];
    real::random_bytes(&mut random);
    let random = u128::from_le_bytes(random);
    let mut layout = match devices::meta_dir(&args.dirs, args.meta.as_deref())? {
        Some(meta) => devices::examine(disk, &args.dirs, meta, args.code, random)?,
        None => layout::examine(disk, &args.dirs, args.osds, args.code, random)?,
    };
    for dir in &layout.dirs {
        if lock::is_held(dir) {
            bail!("{} is in use by a running holdfast process; stop that one first", dir.display());
        }
    }
    storage::refuse(&mut layout, disk)?;
    if let Some(m) = &mount {
        holdfast_fs_fuse::check_mountpoint(&m.mountpoint)?;
        keep_apart(&m.mountpoint, &layout)?;
    }
    let s3 = args.s3.map(|a| TcpListener::bind(a).with_context(|| format!("cannot serve S3 on {a}"))).transpose()?;
    Ok(Prepared { layout, mount, s3 })
}

/// A mount over a data folder, or within one, would hide what it is made of.
fn keep_apart(point: &std::path::Path, layout: &Layout) -> anyhow::Result<()> {
    let real = |p: &std::path::Path| std::fs::canonicalize(p).unwrap_or_else(|_| p.to_path_buf());
    let point = real(point);
    for dir in layout.dirs.iter().map(|d| real(d)) {
        if dir.starts_with(&point) || point.starts_with(&dir) {
            bail!(
                "the mount point {} and the data folder {} lie one in the other; choose another mount point, nothing was changed",
                point.display(),
                dir.display()
            );
        }
    }
    Ok(())
}

fn mount_options(args: &Up, point: &std::path::Path) -> anyhow::Result<MountOptions> {
    let mut o = holdfast_fs_fuse::parse_options(&args.options.join(",")).map_err(anyhow::Error::msg)?;
    o.mountpoint = std::path::absolute(point)?;
    Ok(o)
}

fn lock_all(layout: &Layout, disk: &dyn Disk) -> anyhow::Result<Vec<lock::Lock>> {
    let mut locks = Vec::new();
    for dir in &layout.dirs {
        if layout.fresh && !disk.exists(dir) {
            disk.create_dir_all(dir)?;
            // What is stored is its users' own business; a folder that was there keeps its mode.
            std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700))
                .with_context(|| format!("cannot set the mode of {}", dir.display()))?;
        }
        if disk.exists(dir) && (layout.fresh || layout::read(disk, dir)?.is_some()) {
            locks.push(lock::take(dir)?);
        }
    }
    Ok(locks)
}

async fn serve(
    p: Prepared,
    disk: Arc<RealDisk>,
    keys: credentials::Credentials,
    memory: u64,
    accept_stale: bool,
    bucket: String,
) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let home = p.layout.home().to_path_buf();
    let plan = data::Plan { layout: p.layout, mount: p.mount, bucket, disk, memory, accept_stale };
    let mut data = data::start(plan).await?;
    let running = data.running.clone();
    if let Some(said) = &running.rebuilt {
        say(&format!("rebuilt: {said}"));
    }
    for why in running.losses() {
        say(&format!("degraded: {why}"));
    }
    let gateway = match p.s3 {
        Some(socket) => match gateway::start(socket, keys, &running).await {
            Ok(g) => Some(g),
            Err(e) => {
                data.stop().await?;
                return Err(e);
            }
        },
        None => None,
    };
    let (stop_admin, stopped) = tokio::sync::oneshot::channel::<()>();
    let listener = admin::socket::bind(&home).with_context(|| format!("cannot make the admin socket in {}", home.display()))?;
    let control = Arc::new(control::Cluster::new(running.clone(), gateway.as_ref().map(|g| g.address)));
    let admin = tokio::spawn(admin::server::serve(listener, control, async move {
        let _ = stopped.await;
    }));
    // Here, where no disk call holds it up.
    let looked = running.clone();
    let looking = tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            looked.osds.look();
        }
    });
    if let Some(g) = &gateway {
        say(&format!("s3: http://{}", g.address));
    }
    if let Some(m) = &running.mount {
        say(&format!("mount: {} ({})", m.point.display(), m.transport));
    }
    say("ready");
    notify::send("READY=1");
    let mut over = tokio::select! {
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        end = data.ended() => Some(end),
    };
    if matches!(over, Some(data::End::Unmounted)) {
        over = None;
        if gateway.is_some() {
            tracing::warn!("the mount was taken away from outside; S3 is served until a signal");
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
    }
    let why = over.map(|end| match end {
        data::End::Failed(why) => why,
        data::End::Unmounted => unreachable!("handled above"),
    });
    notify::send("STOPPING=1");
    match &why {
        None => tracing::info!("stopping: draining what is in flight"),
        Some(why) => tracing::error!("stopping: {why}"),
    }
    let drain = async {
        if let Some(g) = gateway {
            g.stop().await?;
        }
        data.stop().await
    };
    let drained = tokio::select! {
        d = drain => d,
        _ = interrupt.recv() => end_at_once(running.mount.as_ref().map(|m| m.point.as_path())),
    };
    drop(stop_admin);
    admin.abort();
    looking.abort();
    drained?;
    why.map_or(Ok(()), |w| Err(anyhow::anyhow!(w)))
}

/// Whoever interrupts twice does not want to wait: threads that still drain are left behind.
fn end_at_once(mount: Option<&std::path::Path>) -> ! {
    eprintln!("holdfast: interrupted again before everything was drained; what was not acknowledged as durable may be lost");
    if let Some(point) = mount.and_then(|m| std::ffi::CString::new(m.as_os_str().as_encoded_bytes()).ok()) {
        // SAFETY: a plain call on a string that lives for the call. Nobody serves the mount any more: it goes out of the tree.
        unsafe { libc::umount2(point.as_ptr(), libc::MNT_DETACH) };
    }
    std::process::exit(1)
}

/// Each segment of a log is an open file: the soft limit goes up to the hard one.
fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read or write the structure given.
    let raised = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0
        }
    };
    if !raised {
        tracing::warn!("the limit of open files stays where it is: {}", std::io::Error::last_os_error());
    }
}

/// A line for whoever started the process; scripts wait for `ready`.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody may be reading.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
