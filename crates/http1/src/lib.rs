//! egret-http1
