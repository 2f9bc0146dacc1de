//! Files and directories, as the system has them. All code that writes while traffic flows names them from
//! here.
//!
//! With the feature `simulated`, a disk in memory takes the system's place: it has the same names and forms
//! (`egret_kernel::disk`). Only the simulation switches that on, see `simulation/README.md`.

#[cfg(not(feature = "simulated"))]
mod disk {
    pub use std::fs::{
        DirBuilder, DirEntry, File, Metadata, OpenOptions, create_dir_all, exists, hard_link, metadata, read,
        read_dir, remove_dir, remove_file, rename, set_permissions, symlink_metadata,
    };
    pub use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};

    pub use crate::private_file;
}

#[cfg(feature = "simulated")]
use egret_kernel::disk;

pub use disk::{
    DirBuilder, DirBuilderExt, DirEntry, File, FileExt, Metadata, MetadataExt, OpenOptions, OpenOptionsExt,
    create_dir_all, exists, hard_link, metadata, private_file, read, read_dir, remove_dir, remove_file,
    rename, set_permissions, symlink_metadata,
};
