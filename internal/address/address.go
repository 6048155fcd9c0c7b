// Package address decides which addresses a server may dial on behalf of others: of webhooks that clients name, of pages that agents read.
package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ErrRefused is the error of a dial to an address that the rules refuse.
var ErrRefused = errors.New("the address is loopback, link-local, private or otherwise not allowed")

// Rules are what is allowed. The zero value allows all but loopback, link-local, multicast and unspecified addresses.
type Rules struct {
	AllowLoopback bool
	RefusePrivate bool // private ranges too
}

// Allow reports whether an address may be dialed. An IPv6 address that carries an IPv4 address counts as that.
func (r Rules) Allow(ip netip.Addr) bool {
	ip = embedded(ip)
	switch {
	case ip.IsLoopback():
		return r.AllowLoopback
	case ip.IsLinkLocalUnicast(), ip.IsMulticast(), ip.IsUnspecified():
		return false
	case ip.IsPrivate():
		return !r.RefusePrivate
	}
	return true
}

// Networks reads a list of addresses and networks, separated by commas or spaces.
func Networks(text string) (list []netip.Prefix, err error) {
	for _, item := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		p, err := netip.ParsePrefix(item)
		if err != nil {
			addr, err := netip.ParseAddr(item)
			if err != nil {
				return nil, fmt.Errorf("%q is neither an address nor a network", item)
			}
			p = netip.PrefixFrom(addr, addr.BitLen())
		}
		list = append(list, p.Masked())
	}
	return list, nil
}

// In reports whether an address is in one of the networks.
func In(networks []netip.Prefix, ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// Customer returns the network that one customer has, as an address: of IPv6 the /64, else the address itself. What is counted by address is counted by it.
func Customer(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	if p, err := ip.Prefix(64); err == nil && ip.Is6() {
		return p.Addr()
	}
	return ip
}

// Dialer dials allowed addresses only. It looks at what a name resolved to, at the moment of the dial, so that a name cannot change its mind in between.
func (r Rules) Dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, Control: func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if !r.Allow(ap.Addr()) {
			return ErrRefused
		}
		return nil
	}}
}

var (
	translated = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("::/96"), netip.MustParsePrefix("::ffff:0:0:0/96")}
	sixToFour  = netip.MustParsePrefix("2002::/16")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")
)

// embedded is the IPv4 address that an IPv6 address stands for, where a network may carry it there: mapped, compatible and translated (NAT64) addresses
// and 6to4. Other addresses are returned as they are.
func embedded(ip netip.Addr) netip.Addr {
	ip = ip.Unmap()
	if !ip.Is6() || ip.IsLoopback() || ip.IsUnspecified() {
		return ip
	}
	b := ip.As16()
	switch {
	case slices.ContainsFunc(translated, func(prefix netip.Prefix) bool { return prefix.Contains(ip) }):
		return netip.AddrFrom4([4]byte(b[12:]))
	case sixToFour.Contains(ip):
		return netip.AddrFrom4([4]byte(b[2:6]))
	case localNAT64.Contains(ip): // a /48 puts the address around byte 8, a /96 at the end: either may be in use, so neither may be forbidden
		if split := netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}); b[12]|b[13]|b[14]|b[15] == 0 {
			return split
		}
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return ip
}
