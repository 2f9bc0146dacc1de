//! The functions of the host that scripts reach through the prelude.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use aws_lc_rs::{digest, hmac};
use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use parking_lot::{Mutex, MutexGuard};
use rquickjs::{Ctx, Exception, Function, Object, Result, Value};
use rustix::time::{ClockId, clock_gettime};

use crate::call::{Call, Misuse, from_latin1, to_latin1};

/// The state that the functions of the host share with the instance.
#[derive(Debug)]
pub(crate) struct ScriptState {
    call: Mutex<Call>,
    /// The thread's processor time at which the call is over, in nanoseconds.
    deadline_ns: AtomicU64,
    /// `true` if the call ran into the deadline.
    has_overrun: AtomicBool,
}

impl ScriptState {
    pub fn new(call: Call) -> Self {
        Self {
            call: Mutex::new(call),
            deadline_ns: AtomicU64::new(u64::MAX),
            has_overrun: AtomicBool::new(false),
        }
    }

    /// The call. Only the instance's own thread ever waits for it, so it never waits.
    pub fn call(&self) -> MutexGuard<'_, Call> {
        self.call.lock()
    }

    /// Starts a call that may take `time`.
    pub fn start(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.deadline_ns.store(thread_time_ns().saturating_add(time), Relaxed);
        self.has_overrun.store(false, Relaxed);
    }

    /// Returns `true` if the time of the call is over.
    pub fn is_over(&self) -> bool {
        let is_over = self.has_overrun.load(Relaxed) || thread_time_ns() > self.deadline_ns.load(Relaxed);
        if is_over {
            self.has_overrun.store(true, Relaxed);
        }
        is_over
    }
}

/// Processor time of this thread. Unlike the time of day it stands still while another process runs, so a
/// busy machine does not end a short call.
pub(crate) fn thread_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.unwrap_or(0))
}

/// Defines `$host.$name`, a function of these arguments, with the call as `$call`. Its error is thrown as a
/// `TypeError`.
macro_rules! functions {
    ($ctx:expr, $host:expr, $shared:expr; $($name:literal($call:ident $(, $argument:ident: $type:ty)*) $body:block)*) => {
        $({
            let shared = Arc::clone($shared);
            let act = move |ctx: Ctx<'js>, $($argument: $type),*| -> Result<Value<'js>> {
                let result = {
                    let mut guard = shared.call();
                    let $call: &mut Call = &mut guard;
                    $body
                };
                match result {
                    Ok(given) => given.into_value(&ctx),
                    Err(misuse) => Err(Exception::throw_type(&ctx, &misuse.to_string())),
                }
            };
            $host.set($name, Function::new($ctx.clone(), act)?)?;
        })*
    };
}

/// A value that the host gives to a script.
enum Given {
    Nothing,
    Null,
    Number(f64),
    /// Bytes, each of which is one character.
    Bytes(Vec<u8>),
    Text(String),
    List(Vec<String>),
}

impl Given {
    fn into_value<'js>(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        let text = |text: &str| Ok(rquickjs::String::from_str(ctx.clone(), text)?.into_value());
        match self {
            Self::Nothing => Ok(Value::new_undefined(ctx.clone())),
            Self::Null => Ok(Value::new_null(ctx.clone())),
            Self::Number(number) => Ok(Value::new_float(ctx.clone(), number)),
            Self::Bytes(bytes) => text(&from_latin1(&bytes)),
            Self::Text(string) => text(&string),
            Self::List(list) => {
                let array = rquickjs::Array::new(ctx.clone())?;
                for (at, string) in list.into_iter().enumerate() {
                    array.set(at, string)?;
                }
                Ok(array.into_value())
            }
        }
    }
}

type HostAnswer = std::result::Result<Given, Misuse>;

fn bytes_or_null(bytes: Option<&[u8]>) -> Given {
    bytes.map_or(Given::Null, |bytes| Given::Bytes(bytes.to_vec()))
}

fn done(result: std::result::Result<(), Misuse>) -> HostAnswer {
    result.map(|()| Given::Nothing)
}

/// Creates the object with all functions of the host.
pub(crate) fn host<'js>(ctx: &Ctx<'js>, shared: &Arc<ScriptState>) -> Result<Object<'js>> {
    let host = Object::new(ctx.clone())?;
    read(ctx, &host, shared)?;
    change(ctx, &host, shared)?;
    compute(ctx, &host, shared)?;
    let clock = Arc::clone(shared);
    let check = move |ctx: Ctx<'js>| -> Result<()> {
        if clock.is_over() { Err(Exception::throw_internal(&ctx, "interrupted")) } else { Ok(()) }
    };
    host.set("check", Function::new(ctx.clone(), check)?)?;
    Ok(host)
}

/// Functions that read messages.
fn read<'js>(ctx: &Ctx<'js>, host: &Object<'js>, shared: &Arc<ScriptState>) -> Result<()> {
    functions! { ctx, host, shared;
        "field"(call, side: u8, name: String) {
            HostAnswer::Ok(bytes_or_null(call.message(side == 1).fields().get(name.as_bytes())))
        }
        "fields"(call, side: u8, name: String) {
            let fields = call.message(side == 1).fields();
            HostAnswer::Ok(Given::List(fields.all(name.as_bytes()).map(|value| from_latin1(value).into_owned()).collect()))
        }
        "names"(call, side: u8) {
            let mut names: Vec<String> = Vec::new();
            for (name, _) in call.message(side == 1).fields().iter() {
                let name = from_latin1(name).to_ascii_lowercase();
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            HostAnswer::Ok(Given::List(names))
        }
        "parameters"(call, name: String) { HostAnswer::Ok(Given::List(call.parameters(&name))) }
        "parameterNames"(call) { HostAnswer::Ok(Given::List(call.parameter_names())) }
        "query"(call) { HostAnswer::Ok(Given::Bytes(call.query.clone().unwrap_or_default())) }
        "method"(call) { HostAnswer::Ok(Given::Bytes(call.method.clone())) }
        "scheme"(call) { HostAnswer::Ok(Given::Text(if call.tls { "https" } else { "http" }.to_owned())) }
        "host"(call) { HostAnswer::Ok(Given::Bytes(call.host.clone())) }
        "path"(call) { HostAnswer::Ok(Given::Bytes(call.path.clone())) }
        "params"(call) {
            let pairs = call.params.iter().flat_map(|(name, value)| {
                [name.clone(), String::from_utf8_lossy(value).into_owned()]
            });
            HostAnswer::Ok(Given::List(pairs.collect()))
        }
        "consumer"(call) { HostAnswer::Ok(bytes_or_null(call.consumer.as_deref())) }
        "provider"(call) { HostAnswer::Ok(Given::Text(call.provider.clone())) }
        "status"(call) { HostAnswer::Ok(Given::Number(f64::from(call.status))) }
        "body"(call, side: u8) {
            let body = call.message(side == 1).body();
            body.map(|body| body.map_or(Given::Null, |body| Given::Text(body.into_owned())))
        }
    }
    Ok(())
}

/// Functions that change messages and decide.
fn change<'js>(ctx: &Ctx<'js>, host: &Object<'js>, shared: &Arc<ScriptState>) -> Result<()> {
    functions! { ctx, host, shared;
        "setField"(call, side: u8, name: String, value: String) {
            done(call.set_field(side == 1, &name, &value, false))
        }
        "addField"(call, side: u8, name: String, value: String) {
            done(call.set_field(side == 1, &name, &value, true))
        }
        "removeField"(call, side: u8, name: String) { done(call.remove_field(side == 1, &name)) }
        "setBody"(call, side: u8, body: String) {
            done(call.message_mut(side == 1).and_then(|message| message.set_body(body)))
        }
        "setPath"(call, path: String) { done(call.set_path(&path)) }
        "setParameter"(call, name: String, value: String) {
            done(call.change_parameter(&name, Some(&value), false))
        }
        "addParameter"(call, name: String, value: String) {
            done(call.change_parameter(&name, Some(&value), true))
        }
        "removeParameter"(call, name: String) { done(call.change_parameter(&name, None, false)) }
        "respond"(call, status: f64, body: String) { done(call.respond(status, body)) }
        "respondField"(call, name: String, value: String) { done(call.respond_field(&name, &value)) }
        "refuse"(call, status: f64, detail: String) { done(call.refuse(status, detail)) }
    }
    Ok(())
}

/// Functions that compute.
fn compute<'js>(ctx: &Ctx<'js>, host: &Object<'js>, shared: &Arc<ScriptState>) -> Result<()> {
    functions! { ctx, host, shared;
        "now"(call) {
            #[expect(clippy::cast_precision_loss, reason = "exact until the year 287396")]
            HostAnswer::Ok(Given::Number(call.now_ms as f64))
        }
        "random"(call) {
            HostAnswer::Ok(Given::Number(egret_clock::unit_interval(call.random.draw())))
        }
        "uuid"(call) {
            let high = (call.random.draw() & !0xf000) | 0x4000;
            let low = (call.random.draw() >> 2) | (1 << 63);
            let hex = format!("{high:016x}{low:016x}");
            let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
            HostAnswer::Ok(Given::Text(parts.join("-")))
        }
        "hash"(_call, algorithm: String, text: String, encoding: String) {
            let algorithm = match algorithm.as_str() {
                "sha1" => Ok(&digest::SHA1_FOR_LEGACY_USE_ONLY),
                "sha256" => Ok(&digest::SHA256),
                "sha512" => Ok(&digest::SHA512),
                _ => Err(Misuse::from(UNKNOWN_ALGORITHM)),
            };
            algorithm.and_then(|algorithm| encoded(digest::digest(algorithm, text.as_bytes()).as_ref(), &encoding))
        }
        "hmac"(_call, algorithm: String, key: String, text: String, encoding: String) {
            let algorithm = match algorithm.as_str() {
                "sha1" => Ok(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
                "sha256" => Ok(hmac::HMAC_SHA256),
                "sha512" => Ok(hmac::HMAC_SHA512),
                _ => Err(Misuse::from(UNKNOWN_ALGORITHM)),
            };
            algorithm.and_then(|algorithm| {
                let key = hmac::Key::new(algorithm, key.as_bytes());
                encoded(hmac::sign(&key, text.as_bytes()).as_ref(), &encoding)
            })
        }
        "btoa"(_call, text: String) {
            match to_latin1(&text) {
                Some(bytes) => Ok(Given::Text(BASE64.encode(&bytes))),
                None => Err(Misuse::from("btoa() takes characters up to U+00FF")),
            }
        }
        "atob"(_call, text: String) {
            let decoded = BASE64.decode(text.as_bytes());
            decoded.map(Given::Bytes).map_err(|_| Misuse::from("atob() takes Base64"))
        }
    }
    Ok(())
}

const UNKNOWN_ALGORITHM: &str = "the algorithm must be `sha256`, `sha512` or `sha1`";

fn encoded(bytes: &[u8], encoding: &str) -> HostAnswer {
    match encoding {
        "hex" => Ok(Given::Text(HEXLOWER.encode(bytes))),
        "base64" => Ok(Given::Text(BASE64.encode(bytes))),
        "base64url" => Ok(Given::Text(BASE64URL_NOPAD.encode(bytes))),
        _ => Err(Misuse::from("the encoding must be `hex`, `base64` or `base64url`")),
    }
}
