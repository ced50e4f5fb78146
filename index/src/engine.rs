//! Engines behind the key-value contract.
