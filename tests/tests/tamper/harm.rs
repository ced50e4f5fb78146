//! Ways to damage bytes.

use std::fs;
use std::path::Path;

use shale_tests::{Outcome, Rng};

use crate::classes::{Class, Place, classes};
use crate::specimen::Specimen;

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Harm {
    FlipBit,
    ZeroSector,
    Truncate,
    ExchangeSectors,
    /// Sound bytes of the same class, from another place.
    AnotherBlock,
    /// Two files of the class change their names.
    ExchangeFiles,
    /// A sound file of another store.
    AnotherStore,
    /// The file as it was some time ago.
    OlderCopy,
    /// All files of the class as they were some time ago.
    OlderClass,
    Remove,
}

const SECTOR: usize = 512;

impl Harm {
    pub(crate) const ALL: [Self; 10] = [
        Self::FlipBit,
        Self::ZeroSector,
        Self::Truncate,
        Self::ExchangeSectors,
        Self::AnotherBlock,
        Self::ExchangeFiles,
        Self::AnotherStore,
        Self::OlderCopy,
        Self::OlderClass,
        Self::Remove,
    ];

    /// Whether nothing outside the place is harmed.
    pub(crate) fn stays_in_place(self) -> bool {
        matches!(
            self,
            Self::FlipBit | Self::ZeroSector | Self::ExchangeSectors | Self::AnotherBlock
        )
    }
}

/// Does it somewhere; returns where, or `None` when it would change nothing.
pub(crate) fn inflict(
    harm: Harm,
    class: Class,
    places: &[Place],
    specimen: &Specimen,
    store: &Path,
    rng: &mut Rng,
) -> Outcome<Option<String>> {
    if !class.is_whole() && !harm.stays_in_place() && harm != Harm::Truncate {
        return Ok(None);
    }
    let pick = |rng: &mut Rng| &places[rng.below(places.len() as u64) as usize];
    let place = pick(rng);
    let target = store.join(&place.file);
    let before = fs::read(&target)?;
    let mut bytes = before.clone();
    if place.range.is_empty() {
        return Ok(None);
    }
    let here = place.range.clone();
    let sector = |rng: &mut Rng| {
        let sectors = here.len().div_ceil(SECTOR) as u64;
        let at = here.start + rng.below(sectors) as usize * SECTOR;
        at..(at + SECTOR).min(here.end)
    };
    match harm {
        Harm::FlipBit => {
            let at = here.start + rng.below(here.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        Harm::ZeroSector => bytes[sector(rng)].fill(0),
        Harm::Truncate => bytes.truncate(here.start + rng.below(here.len() as u64) as usize),
        Harm::ExchangeSectors => {
            let (a, b) = (sector(rng), sector(rng));
            for n in 0..a.len().min(b.len()) {
                bytes.swap(a.start + n, b.start + n);
            }
        }
        Harm::AnotherBlock => {
            let other = pick(rng);
            let from = &fs::read(store.join(&other.file))?[other.range.clone()];
            let len = from.len().min(here.len());
            bytes[here.start..here.start + len].copy_from_slice(&from[..len]);
        }
        Harm::ExchangeFiles => {
            let other = store.join(&pick(rng).file);
            bytes = fs::read(&other)?;
            fs::write(&other, &before)?;
        }
        Harm::AnotherStore => {
            let others = classes(specimen.stranger())?;
            let others = others.get(&class).map_or(&[][..], |places| places);
            let Some(other) = others.first() else {
                return Ok(None);
            };
            bytes = fs::read(specimen.stranger().join(&other.file))?;
        }
        Harm::OlderCopy => match fs::read(specimen.older().join(&place.file)) {
            Ok(old) => bytes = old,
            Err(_) => return Ok(None),
        },
        Harm::OlderClass => return older_class(class, places, specimen, store),
        Harm::Remove => {
            fs::remove_file(&target)?;
            return Ok(Some(place.file.display().to_string()));
        }
    }
    fs::write(&target, &bytes)?;
    let where_ = format!("{}, {:?}", place.file.display(), place.range);
    Ok((bytes != before).then_some(where_))
}

fn older_class(
    class: Class,
    places: &[Place],
    specimen: &Specimen,
    store: &Path,
) -> Outcome<Option<String>> {
    let older = classes(specimen.older())?;
    let older = older.get(&class).map_or(&[][..], |places| places);
    let mut changed = older.len() != places.len();
    for place in places {
        let now = fs::read(store.join(&place.file))?;
        changed |= fs::read(specimen.older().join(&place.file)).ok() != Some(now);
        fs::remove_file(store.join(&place.file))?;
    }
    for place in older {
        let target = store.join(&place.file);
        if let Some(dir) = target.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::copy(specimen.older().join(&place.file), target)?;
    }
    Ok(changed.then(|| format!("{} files", older.len())))
}
