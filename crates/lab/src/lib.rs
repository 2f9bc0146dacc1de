//! egret-lab
