//go:build !linux

package sandbox

// ownLimits are limits that podman needs to be given: none, as it runs in a machine of its own.
func ownLimits() []ulimit { return nil }
