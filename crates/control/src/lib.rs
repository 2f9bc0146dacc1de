//! egret-control
