//! Packet sockets: whole frames of one interface, with the kernel's notes about segmentation and checksums.

use libc::{c_int, c_void, socklen_t};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// A packet socket bound to one interface, for IPv4 frames only.
///
/// Every frame begins with a `virtio_net_hdr` of [`NOTE_LENGTH`] bytes, so that the kernel hands over and takes segments of up to
/// 64 KiB whose checksums nobody has computed yet: one system call then carries what would be 44 frames, and virtual cables
/// need no change of their offloads. The filter on IPv4 also keeps frames that the socket sends from coming back to it.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    socket: OwnedFd,
}

/// Length of the note (`virtio_net_hdr`) before every frame.
pub(crate) const NOTE_LENGTH: usize = 10;
/// Upper bound of a note and its frame.
pub(crate) const FRAME_LENGTH_MAX: usize = NOTE_LENGTH + 14 + 4 + 65_536;

/// IPv4 as a protocol of Ethernet.
const ETH_P_IP: u16 = 0x0800;
/// Bytes that wait in the kernel, if this process may choose (only root of the first user namespace).
const BUFFER_BYTES: c_int = 16 << 20;

#[expect(
    unsafe_code,
    reason = "no safe crate binds packet sockets or sets PACKET_VNET_HDR"
)]
impl PacketSocket {
    /// Opens a socket for the interface with this index in the network namespace of the calling thread.
    pub(crate) fn open(index: u32) -> io::Result<PacketSocket> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // Protocol 0: nothing arrives before the socket is bound.
        // SAFETY: a system call without pointers; the descriptor that it returns belongs to no one else.
        let socket = unsafe {
            match libc::socket(libc::AF_PACKET, kind, 0) {
                -1 => return Err(io::Error::last_os_error()),
                descriptor => OwnedFd::from_raw_fd(descriptor),
            }
        };
        let socket = PacketSocket { socket };
        socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        // The privileged variant first; the other is bounded by net.core.rmem_max.
        if socket
            .set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES)
            .is_err()
        {
            socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER_BYTES)?;
        }
        socket.bind(index)?;
        Ok(socket)
    }

    fn set(&self, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        let pointer: *const c_int = &raw const value;
        // SAFETY: the pointer and the length are those of `value`, which outlives the call.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                level,
                name,
                pointer.cast::<c_void>(),
                size_of::<c_int>() as socklen_t,
            )
        };
        if result == 0 {
            return Ok(());
        }
        Err(io::Error::last_os_error())
    }

    fn bind(&self, index: u32) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: ETH_P_IP.to_be(),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let pointer: *const libc::sockaddr_ll = &raw const address;
        // SAFETY: the pointer and the length are those of `address`, which outlives the call.
        let result = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                pointer.cast::<libc::sockaddr>(),
                size_of::<libc::sockaddr_ll>() as socklen_t,
            )
        };
        if result == 0 {
            return Ok(());
        }
        Err(io::Error::last_os_error())
    }
}

impl PacketSocket {
    /// Reads one frame with its note into `buffer`; `None` if none waits.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(&self.socket, buffer, RecvFlags::DONTWAIT) {
            Ok((length, _)) => Ok(Some(length)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends one frame with its note; an error if the kernel has no room for it.
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<()> {
        send(&self.socket, frame, SendFlags::DONTWAIT)?;
        Ok(())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
