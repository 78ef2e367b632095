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

/// A netlink socket of one network namespace: the one of the thread that opened it, for as long as it lives.
///
/// Four kinds of requests are needed (lo up, a veth pair, an interface up, an address), each one message and one
/// acknowledgement, so this file takes the place of a library with its own runtime.
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
const RTM_NEWADDR: u16 = 20;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
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
/// Length of the header of a message.
const HEADER_LENGTH: usize = 16;

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
        let mut message = Vec::with_capacity(HEADER_LENGTH + body.len());
        message.extend(((HEADER_LENGTH + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
        message.extend([0; 8]); // sequence number and port: one request at a time
        message.extend(body);
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &message, SendFlags::empty(), &kernel)?;
        let mut answer = [0_u8; 4096];
        let (length, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        acknowledged(&answer[..length])
    }
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
