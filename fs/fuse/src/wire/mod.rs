//! The kernel's FUSE protocol, as bytes.
//!
//! What it is: every structure this crate reads from or writes to `/dev/fuse`, with the layout the Linux UAPI header
//! fixes (protocol 7.45; native endianness, 8-byte alignment, no padding that is not named). What always holds: sizes are
//! asserted at compile time; reading never needs alignment, since values are copied out.
//! What it leaves out: CUSE, DAX mappings, ioctl, poll, passthrough backing ids.
//!
//! A request is `InHeader` (40 bytes), then the operation's structure, then names (each ended by a zero byte) or payload.
//! A reply is `OutHeader` (16 bytes), then its structure or data. A notification is a reply with `unique` 0
//! whose `error` is a [`notify`] code.

pub mod flags;
pub mod opcode;
mod replies;
mod requests;

pub use replies::*;
pub use requests::*;

/// Protocol version spoken, major.
pub const MAJOR: u32 = 7;
/// Newest minor version this code knows; the smaller of the kernel's and ours is used.
pub const MINOR: u32 = 45;
/// First minor version in which the kernel takes `NOTIFY_INC_EPOCH`.
pub const MINOR_INC_EPOCH: u32 = 44;
/// Bytes of `InHeader` and `WriteIn`: where the payload of a WRITE begins.
pub const WRITE_PAYLOAD_AT: usize = 80;

/// Codes of notifications to the kernel.
pub mod notify {
    pub const INVAL_INODE: i32 = 2;
    pub const INVAL_ENTRY: i32 = 3;
    pub const INC_EPOCH: i32 = 8;
}

const _: () = {
    assert!(size_of::<InHeader>() == 40);
    assert!(size_of::<InHeader>() + size_of::<WriteIn>() == WRITE_PAYLOAD_AT);
    assert!(size_of::<InitIn>() == 16);
    assert!(size_of::<InitInExt>() == 48);
    assert!(size_of::<SetattrIn>() == 88);
    assert!(size_of::<ReadIn>() == 40);
    assert!(size_of::<LkIn>() == 48);
    assert!(size_of::<CopyFileRangeIn>() == 56);
    assert!(size_of::<OutHeader>() == 16);
    assert!(size_of::<AttrWire>() == 88);
    assert!(size_of::<EntryOut>() == 128);
    assert!(size_of::<AttrOut>() == 104);
    assert!(size_of::<OpenOut>() == 16);
    assert!(size_of::<StatfsOut>() == 80);
    assert!(size_of::<InitOut>() == 64);
    assert!(size_of::<DirentHead>() == 24);
    assert!(size_of::<LkOut>() == 24);
};
