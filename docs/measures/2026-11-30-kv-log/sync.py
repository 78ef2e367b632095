import os, mmap, time, resource, sys
L=int(sys.argv[1]); N=int(sys.argv[2]); 
buf=mmap.mmap(-1,L); buf.write(os.urandom(L))
def run(name, flags, pre, sync=True, loops=1):
    p="direct-file"
    if os.path.exists(p): os.unlink(p)
    if pre:
        fd=os.open(p,os.O_CREAT|os.O_RDWR); 
        z=bytes(1<<20)
        for i in range((N*L>>20)+1): os.pwrite(fd,z,i<<20)
        os.fsync(fd)
        if pre=="cold": os.posix_fadvise(fd,0,0,os.POSIX_FADV_DONTNEED)
        os.close(fd)
    fd=os.open(p,os.O_CREAT|os.O_RDWR|flags)
    r0=resource.getrusage(resource.RUSAGE_SELF); t=time.monotonic()
    for i in range(N):
        os.pwrite(fd,buf,i*L)
        if sync: os.fdatasync(fd)
    t=time.monotonic()-t; r=resource.getrusage(resource.RUSAGE_SELF)
    os.close(fd)
    c=(r.ru_utime+r.ru_stime-r0.ru_utime-r0.ru_stime)
    print(f"{name:34s} {t/N*1e6:8.0f} us wall {c/N*1e6:8.0f} us cpu")
for k in range(2):
    run("grow buffered", 0, None)
    run("prefilled warm buffered", 0, "warm")
    run("prefilled cold buffered", 0, "cold")
    run("prefilled direct", os.O_DIRECT, "warm")
    run("prefilled cold direct", os.O_DIRECT, "cold")
    run("prefilled direct dsync", os.O_DIRECT|os.O_DSYNC, "cold", sync=False)
os.unlink("direct-file")
