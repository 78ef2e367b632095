//! Requests to the kernel about interfaces and addresses (rtnetlink), written by hand.

#![expect(
    clippy::host_endian_bytes,
    reason = "netlink messages have the order of the machine"
)]

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, sendto,
    socket_with,
};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// A netlink socket of one network namespace: the one of the thread that opened it, for as long as it lives.
///
/// Five kinds of requests are needed (lo up, a veth pair, an interface up, its state, an address), each one message and one
/// answer, so this file takes the place of a library with its own runtime.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
}

/// Ends of a virtual cable: names, indexes and hardware addresses of both interfaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CableEnd<'a> {
    /// Name of the interface.
    pub(crate) name: &'a str,
    /// Its index, unique in its namespace.
    pub(crate) index: u32,
    /// Its hardware address.
    pub(crate) mac: [u8; 6],
}

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFF_UP: u32 = 1;
/// No ARP: the switch knows every address, and interfaces send to it without asking.
const IFF_NOARP: u32 = 0x80;
/// Index of the loopback interface in every namespace.
const LOOPBACK: u32 = 1;
const AF_INET: u8 = 2;
/// Length of the header of a message, …
const HEADER_LENGTH: usize = 16;
/// … and of one about an interface, before its attributes.
const LINK_HEADER_LENGTH: usize = HEADER_LENGTH + 16;
/// The state of an interface that sends and receives (`IF_OPER_UP`).
const OPERATIONAL: u8 = 6;
/// Time limit for an interface to reach it: the kernel's work for that may wait on a busy machine.
const OPERATIONAL_MAX: Duration = Duration::from_secs(10);

impl Netlink {
    /// Opens a socket in the network namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Netlink> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None, // NETLINK_ROUTE is protocol 0
        )?;
        Ok(Netlink { socket })
    }

    /// Sets the loopback interface up.
    pub(crate) fn loopback_up(&self) -> io::Result<()> {
        self.request(RTM_NEWLINK, 0, &link_header(LOOPBACK, IFF_UP))
    }

    /// Sets an end of a cable up, without ARP.
    pub(crate) fn cable_up(&self, index: u32) -> io::Result<()> {
        self.request(RTM_NEWLINK, 0, &link_header(index, IFF_UP | IFF_NOARP))
    }

    /// Waits until an end of a cable sends and receives. The kernel activates the end that was set up first later, in a work of
    /// its own; until then it silently drops what it is to send.
    pub(crate) fn until_operational(&self, index: u32) -> io::Result<()> {
        let began = Instant::now();
        while !is_operational(&self.ask(RTM_GETLINK, 0, &link_header(index, 0))?)? {
            if began.elapsed() > OPERATIONAL_MAX {
                let text =
                    format!("interface {index} is not operational after {OPERATIONAL_MAX:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Makes a veth pair, `here` in the namespace of this socket and `there` in `namespace`. Its ends are down: the kernel
    /// refuses to open one before it knows the other.
    pub(crate) fn add_cable(
        &self,
        here: CableEnd<'_>,
        there: CableEnd<'_>,
        namespace: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let mut peer = end_body(there);
        let descriptor = namespace.as_raw_fd().to_ne_bytes();
        attribute(&mut peer, IFLA_NET_NS_FD, &descriptor);
        let mut data = Vec::new();
        attribute(&mut data, VETH_INFO_PEER, &peer);
        let mut info = Vec::new();
        attribute(&mut info, IFLA_INFO_KIND, b"veth");
        attribute(&mut info, IFLA_INFO_DATA, &data);
        let mut body = end_body(here);
        attribute(&mut body, IFLA_LINKINFO, &info);
        self.request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &body)
    }

    /// Adds an address with its network to an interface.
    pub(crate) fn add_address(
        &self,
        index: u32,
        address: Ipv4Addr,
        prefix_length: u8,
    ) -> io::Result<()> {
        let mut body = vec![AF_INET, prefix_length, 0, 0];
        body.extend(index.to_ne_bytes());
        attribute(&mut body, IFA_LOCAL, &address.octets());
        attribute(&mut body, IFA_ADDRESS, &address.octets());
        self.request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &body)
    }

    /// Sends one request and waits for its acknowledgement.
    fn request(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        acknowledged(&self.ask(kind, NLM_F_ACK | flags, body)?)
    }

    /// Sends one request and waits for the one message of its answer.
    fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut message = Vec::with_capacity(HEADER_LENGTH + body.len());
        message.extend(((HEADER_LENGTH + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        message.extend([0; 8]); // sequence number and port: one request at a time
        message.extend(body);
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &message, SendFlags::empty(), &kernel)?;
        // The kernel's description of an interface has some 2 KiB.
        let mut answer = vec![0_u8; 16 << 10];
        let (length, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        answer.truncate(length);
        Ok(answer)
    }
}

/// Does an interface send and receive, as this description of it says?
fn is_operational(answer: &[u8]) -> io::Result<bool> {
    let kind = answer.get(4..6);
    if kind != Some(&RTM_NEWLINK.to_ne_bytes()) {
        acknowledged(answer)?; // an error of the kernel
        return Ok(false);
    }
    let mut rest = answer.get(LINK_HEADER_LENGTH..).unwrap_or_default();
    while let Some((header, _)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]])).max(4);
        let kind = u16::from_ne_bytes([header[2], header[3]]);
        if kind == IFLA_OPERSTATE {
            return Ok(rest.get(4) == Some(&OPERATIONAL));
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The result that an acknowledgement carries.
fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "malformed netlink answer");
    let kind = answer.get(4..6).ok_or_else(malformed)?;
    let code = answer.get(16..20).ok_or_else(malformed)?;
    let code = i32::from_ne_bytes(code.try_into().map_err(|_| malformed())?);
    if u16::from_ne_bytes([kind[0], kind[1]]) != NLMSG_ERROR {
        return Err(malformed());
    }
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(-code)),
    }
}

/// The header of a message about an interface: index, and flags to set.
fn link_header(index: u32, flags: u32) -> Vec<u8> {
    let mut header = vec![0; 4];
    header.extend(index.to_ne_bytes());
    header.extend(flags.to_ne_bytes());
    header.extend(flags.to_ne_bytes()); // the flags that change
    header
}

/// Header, name and hardware address of a new interface.
fn end_body(end: CableEnd<'_>) -> Vec<u8> {
    let mut body = link_header(end.index, 0);
    let mut name = end.name.as_bytes().to_vec();
    name.push(0);
    attribute(&mut body, IFLA_IFNAME, &name);
    attribute(&mut body, IFLA_ADDRESS, &end.mac);
    body
}

/// Appends an attribute, padded to four bytes.
fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).expect("attributes are short");
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_but_their_length_is_not() {
        let mut body = Vec::new();
        attribute(&mut body, 7, b"abcde");
        assert_eq!(body.len(), 12);
        assert_eq!(u16::from_ne_bytes([body[0], body[1]]), 9);
        assert_eq!(&body[4..], b"abcde\0\0\0");
    }

    #[test]
    fn the_state_of_an_interface_is_found_behind_other_attributes() {
        let description = |state: u8| {
            let mut answer = vec![0; LINK_HEADER_LENGTH];
            answer[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
            attribute(&mut answer, IFLA_IFNAME, b"eth0\0");
            attribute(&mut answer, IFLA_OPERSTATE, &[state]);
            answer
        };
        assert!(is_operational(&description(OPERATIONAL)).unwrap());
        assert!(!is_operational(&description(2)).unwrap());
        for length in 0..description(OPERATIONAL).len() - 4 {
            let cut = is_operational(&description(OPERATIONAL)[..length]);
            assert!(!matches!(cut, Ok(true)), "{length} bytes");
        }
        let mut refused = vec![0; 36];
        refused[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        refused[16..20].copy_from_slice(&(-19_i32).to_ne_bytes());
        assert!(is_operational(&refused).is_err());
    }

    #[test]
    fn an_error_of_the_kernel_is_an_error() {
        let mut answer = [0_u8; 36];
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert!(acknowledged(&answer).is_ok());
        answer[16..20].copy_from_slice(&(-1_i32).to_ne_bytes());
        let error = acknowledged(&answer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(acknowledged(&answer[..18]).is_err());
    }
}
