package redisstore

// slot returns the hash slot of a key's identity, which is what stands between its braces: the CRC-16 of
// XMODEM, as the Redis Cluster specification says.
func slot(identity string) uint16 {
	var crc uint16
	for i := range len(identity) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^identity[i]]
	}
	return crc % 16384
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
		table[i] = crc
	}
	return table
}()
