//! The start of a replica: the newest map file, and the log after it.

use crate::downstairs::map_file::{ReplayStart, map_files, read_map};
use crate::downstairs::region::Region;
use crate::downstairs::region_record::{REGION_LOG, RegionRecord, read_records};
use crate::geometry::Geometry;
use seatrial_blocks::{HEADER_LENGTH, Torn, WalkError, Walker};
use seatrial_machine::{DataFolder, LogName, LogView, MessageError};

/// Why a replica cannot start from its folder.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] std::io::Error),
    /// The log cannot be read at an offset.
    #[error("cannot read the log at {offset}: {cause}")]
    Read {
        /// The offset.
        offset: u64,
        /// The disk's error.
        cause: std::io::Error,
    },
    /// The log was written by a newer program.
    #[error(
        "block at {offset} of the log is of format version {version}, this program reads version 1"
    )]
    Version {
        /// Offset of the block.
        offset: u64,
        /// Its version.
        version: u8,
    },
    /// A whole block with records that a replica does not write.
    #[error("block at {offset} of the log: {problem}")]
    Record {
        /// Offset of the block.
        offset: u64,
        /// The error.
        problem: MessageError,
    },
    /// The folder holds another volume.
    #[error("the folder holds volume {}, not {}", .found.volume, .expected.volume)]
    Volume {
        /// The volume of the folder.
        found: Geometry,
        /// The one that is served.
        expected: Geometry,
    },
    /// The folder holds the volume in another shape.
    #[error("the folder's region has {} blocks of {} bytes, not {} of {}", .found.blocks, .found.block_length, .expected.blocks, .expected.block_length)]
    Shape {
        /// The shape of the folder.
        found: Geometry,
        /// The one that is served.
        expected: Geometry,
    },
}

/// What a start found.
#[derive(Clone, Debug, Default)]
pub struct RegionReport {
    /// The end of the log.
    pub end: u64,
    /// Is the folder new?
    pub is_new: bool,
    /// Bytes of log that were read.
    pub replayed: u64,
    /// Position of the map file that was read.
    pub map: Option<u64>,
    /// What is damaged: the replica gets everything that it lacks from the others.
    pub damaged: Vec<String>,
    /// The end of the log that a crash tore.
    pub torn: Option<Torn>,
}

/// The state that a folder holds.
pub(crate) struct ReadRegion {
    pub(crate) region: Region,
    pub(crate) report: RegionReport,
    /// Number of the next block of the log.
    pub(crate) sequence: u64,
}

/// Reads a folder.
pub(crate) fn read_region(
    data: &DataFolder,
    expected: &Geometry,
    segment_length: u64,
) -> Result<ReadRegion, RegionError> {
    let log = data.log(LogName::MAIN)?;
    let mut report = RegionReport::default();
    let (mut region, mut from) = newest_map(data, &log, segment_length, &mut report)?
        .unwrap_or_else(|| {
            let begin = ReplayStart {
                position: log.start(),
                sequence: 0,
            };
            (Region::new(*expected, segment_length), begin)
        });
    check_geometry(&region.geometry, expected)?;
    let mut is_expected = report.map.is_some() || log.start() == 0;
    let mut is_damaged =
        !report.damaged.is_empty() || (!is_expected && seatrial_machine::Disk::len(&log) > 0);
    report.is_new = report.map.is_none() && seatrial_machine::Disk::len(&log) == 0;
    let start = from.position;
    loop {
        let mut walker = Walker::new(&log, from.position);
        if is_expected {
            walker = walker.expecting(from.sequence);
        }
        let stopped = replay(&mut walker, &mut region)?;
        from = ReplayStart {
            position: walker.offset(),
            sequence: walker.next_sequence(),
        };
        match stopped {
            None => break,
            Some(WalkError::Torn(torn)) => {
                report.torn = Some(torn);
                break;
            }
            Some(WalkError::Damaged(damage)) => {
                report.damaged.push(format!("log: {damage}"));
                is_damaged = true;
                from = ReplayStart {
                    position: damage.newer_offset,
                    sequence: damage.newer_sequence,
                };
                is_expected = true;
            }
            Some(WalkError::Fault { offset, cause }) => {
                return Err(RegionError::Read { offset, cause });
            }
            Some(WalkError::Version { offset, version }) => {
                return Err(RegionError::Version { offset, version });
            }
        }
    }
    if is_damaged {
        region.distrust();
    }
    report.end = from.position;
    report.replayed = from.position.saturating_sub(start);
    Ok(ReadRegion {
        region,
        report,
        sequence: from.sequence,
    })
}

/// The newest map file that is whole, and whose log is still there.
fn newest_map(
    data: &DataFolder,
    log: &LogView,
    segment_length: u64,
    report: &mut RegionReport,
) -> Result<Option<(Region, ReplayStart)>, RegionError> {
    for name in map_files(data)? {
        let file = data.file(&name)?;
        match read_map(&*file, segment_length) {
            Ok((region, from)) if from.position >= log.start() => {
                report.map = Some(from.position);
                return Ok(Some((region, from)));
            }
            Ok(_) => report
                .damaged
                .push(format!("{name}: the log after it was freed")),
            Err(error) => report.damaged.push(format!("{name}: {error}")),
        }
    }
    Ok(None)
}

fn check_geometry(found: &Geometry, expected: &Geometry) -> Result<(), RegionError> {
    let (found, expected) = (*found, *expected);
    if found.volume != expected.volume {
        return Err(RegionError::Volume { found, expected });
    }
    if found != expected {
        return Err(RegionError::Shape { found, expected });
    }
    Ok(())
}

/// Carries out the records up to where the walker stops.
fn replay(walker: &mut Walker<'_>, region: &mut Region) -> Result<Option<WalkError>, RegionError> {
    loop {
        let block = match walker.next_block() {
            Ok(Some(block)) => block,
            Ok(None) => return Ok(None),
            Err(error) => return Ok(Some(error)),
        };
        let offset = block.offset;
        if block.header.kind != REGION_LOG {
            continue;
        }
        let records = read_records(block.payload, region.geometry.block_length);
        let records = records.map_err(|problem| RegionError::Record { offset, problem })?;
        for record in &records {
            if let RegionRecord::Region(found) = record {
                check_geometry(found, &region.geometry)?;
            }
            region.apply(record, offset + HEADER_LENGTH as u64);
        }
    }
}
