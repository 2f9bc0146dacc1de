//! The name server of an isolated command: it answers on the command's sockets with what the gateway's
//! resolver finds, if the egress policy lets the host be called.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use egret_gateway::Gateway;
use egret_net::dns::DnsQuestion;
use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt, sockopt,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;

use super::passed_sockets::Purpose;

/// Maximum number of questions and connections in progress. Further questions get no reply, and their clients
/// ask again; further connections wait.
const QUESTIONS_MAX: usize = 256;

/// Maximum length of a question. Longer ones are cut, and then are none.
const QUESTION_BYTES_MAX: usize = 4096;

/// Time that a client has for all its questions over one connection.
const CONNECTION_TIME: Duration = Duration::from_secs(30);

/// Pause after an error of a socket, which may last.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts a thread that answers on these sockets until the process ends.
pub fn serve(sockets: Vec<(Purpose, OwnedFd)>, gateway: Arc<Gateway>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let server = Arc::new(Server { gateway, questions: Arc::new(Semaphore::new(QUESTIONS_MAX)) });
    let mut tasks = Vec::new();
    {
        let _entered = runtime.enter();
        for (purpose, socket) in sockets {
            let server = Arc::clone(&server);
            if purpose == Purpose::NamesOverTcp {
                let listener = TcpListener::from(socket);
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                tasks.push(runtime.spawn(async move { server.serve_connections(listener).await }));
            } else {
                let socket = Arc::new(Datagrams::new(UdpSocket::from(socket))?);
                tasks.push(runtime.spawn(async move { server.serve_datagrams(socket).await }));
            }
        }
    }
    let run = move || {
        runtime.block_on(async {
            for task in tasks {
                // They do not end, and do not panic.
                let _ = task.await;
            }
        });
    };
    std::thread::Builder::new().name("egret-names".into()).spawn(run).map(drop)
}

struct Server {
    gateway: Arc<Gateway>,
    questions: Arc<Semaphore>,
}

impl Server {
    /// Returns the reply to a message, unless it deserves none.
    async fn reply(&self, message: &[u8]) -> Option<Vec<u8>> {
        let question = DnsQuestion::parse(message)?;
        let reply = match question.host() {
            // There are no records of other types here.
            None => question.reply(Ok(&[])),
            Some(host) => match self.gateway.look_up(&host).await {
                Ok(addresses) => question.reply(Ok(&addresses)),
                Err(why) => question.reply(Err(why)),
            },
        };
        Some(reply)
    }

    async fn serve_datagrams(self: Arc<Self>, socket: Arc<Datagrams>) {
        loop {
            let Ok(datagram) = socket.receive().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let Ok(permit) = Arc::clone(&self.questions).try_acquire_owned() else { continue };
            let (server, socket) = (Arc::clone(&self), Arc::clone(&socket));
            tokio::spawn(async move {
                let _permit = permit;
                if let Some(reply) = server.reply(&datagram.message).await {
                    // The client asks again if the reply is lost.
                    let _ = socket.send(&reply, &datagram);
                }
            });
        }
    }

    async fn serve_connections(self: Arc<Self>, listener: tokio::net::TcpListener) {
        while let Ok(permit) = Arc::clone(&self.questions).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let server = Arc::clone(&self);
            tokio::spawn(async move {
                let _permit = permit;
                let _ = tokio::time::timeout(CONNECTION_TIME, server.serve_connection(stream)).await;
            });
        }
    }

    /// Answers questions, each behind its length (RFC 1035 §4.2.2), until the client leaves.
    async fn serve_connection(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut message = Vec::new();
        loop {
            let length = usize::from(stream.read_u16().await?);
            if length > QUESTION_BYTES_MAX {
                return Err(ErrorKind::InvalidData.into());
            }
            message.resize(length, 0);
            stream.read_exact(&mut message).await?;
            let reply = self.reply(&message).await.ok_or(ErrorKind::InvalidData)?;
            let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
            stream.write_all(&[&length.to_be_bytes()[..], &reply].concat()).await?;
        }
    }
}

/// A message, with the addresses of both sides: the reply must come from the one that the client has asked.
#[derive(Debug)]
struct Datagram {
    message: Vec<u8>,
    from: SocketAddr,
    to: IpAddr,
}

/// A socket that receives for every address.
struct Datagrams(tokio::net::UdpSocket);

impl Datagrams {
    fn new(socket: UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        if socket.local_addr()?.is_ipv4() {
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        } else {
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
        }
        Ok(Self(tokio::net::UdpSocket::from_std(socket)?))
    }

    async fn receive(&self) -> io::Result<Datagram> {
        self.0.async_io(Interest::READABLE, || receive(self.0.as_fd())).await
    }

    /// Sends a reply, or drops it if there is no room.
    fn send(&self, reply: &[u8], to: &Datagram) -> io::Result<()> {
        send(self.0.as_fd(), reply, to)
    }
}

fn receive(socket: BorrowedFd<'_>) -> io::Result<Datagram> {
    let (mut message, mut space) = (vec![0; QUESTION_BYTES_MAX], nix::cmsg_space!(in6_pktinfo));
    let mut pieces = [IoSliceMut::new(&mut message)];
    let received =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut pieces, Some(&mut space), MsgFlags::empty())?;
    let to = received.cmsgs()?.find_map(|item| match item {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            Some(IpAddr::V4(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes())))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr))),
        _ => None,
    });
    let (from, length) = (received.address.as_ref().and_then(internet), received.bytes);
    let (Some(from), Some(to)) = (from, to) else { return Err(ErrorKind::InvalidData.into()) };
    message.truncate(length);
    Ok(Datagram { message, from, to })
}

fn send(socket: BorrowedFd<'_>, reply: &[u8], datagram: &Datagram) -> io::Result<()> {
    let (pieces, to) = ([IoSlice::new(reply)], SockaddrStorage::from(datagram.from));
    let send = |info| sendmsg(socket.as_raw_fd(), &pieces, &[info], MsgFlags::MSG_DONTWAIT, Some(&to));
    match datagram.to {
        IpAddr::V4(ip) => {
            let nowhere = in_addr { s_addr: 0 };
            let source = in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
            let info = in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: nowhere };
            send(ControlMessage::Ipv4PacketInfo(&info))?;
        }
        IpAddr::V6(ip) => {
            let info = in6_pktinfo { ipi6_addr: in6_addr { s6_addr: ip.octets() }, ipi6_ifindex: 0 };
            send(ControlMessage::Ipv6PacketInfo(&info))?;
        }
    }
    Ok(())
}

fn internet(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|address| SocketAddr::V4(SocketAddrV4::from(*address)));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| SocketAddr::V6(SocketAddrV6::from(*address))))
}
