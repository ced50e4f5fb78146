//! Options about the device that a store is on.

use shale_store::{Device, DeviceOptions, StripeCount, Striping};

use super::{OptionError, parse_size};

const STRIPE_UNIT: u64 = 64 << 10;
const STRIPE_MAX: u64 = 4 << 30;

/// The options given, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedDevice {
    /// `backing=`; `Some(None)` is `auto`.
    backing: Option<Option<Device>>,
    /// `stripe_count=`
    stripe_count: Option<StripeCount>,
    /// `stripe_size=`
    stripe_size: Option<u64>,
}

/// Names of the options.
pub(super) const NAMES: [&str; 3] = ["backing", "stripe_count", "stripe_size"];

impl RequestedDevice {
    /// Sets an option that has a value. `Ok(false)` when there is no such option.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<bool, OptionError> {
        match name {
            "backing" => self.backing = Some(parse_backing(value)?),
            "stripe_count" => self.stripe_count = Some(parse_stripe_count(value)?),
            "stripe_size" => self.stripe_size = Some(parse_stripe_size(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Fills in the defaults.
    pub(super) fn resolve(&self) -> DeviceOptions {
        let usual = Striping::default();
        DeviceOptions {
            device: self.backing.flatten(),
            striping: Striping {
                count: self.stripe_count.unwrap_or(usual.count),
                size: self.stripe_size.unwrap_or(usual.size),
            },
        }
    }
}

fn parse_backing(text: &str) -> Result<Option<Device>, OptionError> {
    match text {
        "auto" => Ok(None),
        "posix" => Ok(Some(Device::Posix)),
        "pmem" => Ok(Some(Device::Pmem)),
        "lustre" => Ok(Some(Device::Lustre)),
        _ => Err(OptionError(format!(
            "backing '{text}' is not known; give auto, posix, pmem or lustre"
        ))),
    }
}

fn parse_stripe_count(text: &str) -> Result<StripeCount, OptionError> {
    match (text, text.parse()) {
        ("all", _) => Ok(StripeCount::All),
        ("keep", _) => Ok(StripeCount::Keep),
        (_, Ok(count @ 1..=2000)) => Ok(StripeCount::Targets(count)),
        _ => Err(OptionError(format!(
            "stripe_count '{text}' is not a number from 1 to 2000; \
             give one, or 'all', or 'keep' to leave it as the directory has it"
        ))),
    }
}

fn parse_stripe_size(text: &str) -> Result<u64, OptionError> {
    match parse_size(text) {
        Some(bytes @ STRIPE_UNIT..=STRIPE_MAX) if bytes % STRIPE_UNIT == 0 => Ok(bytes),
        _ => Err(OptionError(format!(
            "stripe_size '{text}' is not a multiple of 64K up to 4G; \
             give a size, for example stripe_size=4M"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_devices_are_read() {
        let mut asked = RequestedDevice::default();
        assert_eq!(asked.resolve(), DeviceOptions::default());
        for (name, value) in [
            ("backing", "lustre"),
            ("stripe_count", "4"),
            ("stripe_size", "1M"),
        ] {
            assert!(asked.set(name, value).unwrap());
        }
        let expected = DeviceOptions {
            device: Some(Device::Lustre),
            striping: Striping {
                count: StripeCount::Targets(4),
                size: 1 << 20,
            },
        };
        assert_eq!(asked.resolve(), expected);
        assert!(asked.set("backing", "auto").unwrap());
        assert_eq!(asked.resolve().device, None);
        assert!(!asked.set("memory", "1G").unwrap());
    }

    #[test]
    fn nonsense_is_refused_with_what_to_give_instead() {
        let mut asked = RequestedDevice::default();
        for (name, value) in [
            ("backing", "floppy"),
            ("backing", ""),
            ("stripe_count", "0"),
            ("stripe_count", "-1"),
            ("stripe_count", "2001"),
            ("stripe_size", "1"),
            ("stripe_size", "100K"),
            ("stripe_size", "8G"),
        ] {
            let error = asked.set(name, value).unwrap_err().to_string();
            assert!(error.contains("give"), "{name}={value}: {error}");
        }
        assert_eq!(asked, RequestedDevice::default());
    }
}
