module egret.invalid/peers/http2

go 1.26.0
