//! What the end-to-end scenarios share: starting Egret and its peers on free ports.
