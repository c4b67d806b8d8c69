from data import *
from faceanon.models import load_backbone
from faceanon.studies.photographs.people import find_people, read_faces
from faceanon.studies.photographs.judges import mobilefacenet, dlib_resnet, shipped_recogniser
from faceanon.landmarks.expression import expression
from faceanon.landmarks.mesh import FaceMesh, LEFT_EYE, RIGHT_EYE
from faceanon.backbones.persona_cells import rows_of
PEOPLE = 'SHARED/testbed/identity_rgb256'
CKPT = Path('SHARED/testbed/weights/recognition/mobilefacenet_casia_068.ckpt')
STORE = W / 'pics'; STORE.mkdir(exist_ok=True)

def real(side=128):
    people = find_people(Path(PEOPLE), None, 2); image, person = read_faces(people, side); return image, person
def synth():
    _, test, _, _ = torch.load(W / 'versions.pt', weights_only=False)
    return test.image[::3][:24].float() / 127.5 - 1
def method():
    m, _ = load_backbone('persona_photo128'); return m.eval()
def look(m, image, name):
    p = W / f'look_{name}.pt'
    if p.exists(): return torch.load(p, weights_only=False)
    out = []
    with torch.no_grad():
        for part in image.split(8): out.append(m._look(part))
    codes = out[0][0]; parts = [c for c, _, _ in out]
    import dataclasses
    kw = {}
    for f in dataclasses.fields(codes):
        v = [getattr(c, f.name) for c in parts]
        if isinstance(v[0], torch.Tensor): kw[f.name] = torch.cat(v)
        elif isinstance(v[0], dict): kw[f.name] = {k: torch.cat([d[k] for d in v]) for k in v[0]}
        else: kw[f.name] = v[0]
    r = (dataclasses.replace(codes, **kw), torch.cat([e for _, e, _ in out]), torch.cat([c for _, _, c in out]))
    torch.save(r, p); return r
def key_of(m, number): return m.sample_key(1, torch.Generator().manual_seed(1000 + number))
def noise_of(number): return torch.randn(1, 32, 16, 16, generator=torch.Generator().manual_seed(2000 + number))
def to_bytes(x): return ((x.float().clamp(-1, 1) + 1) * 127.5).round().byte()
def stranger(m, codes, number, variety):
    return m.identities.nearer_to_mean(m.identities.turned(codes.identity, key_of(m, number).expand(len(codes.identity), -1, -1)), variety)
def bf16(net):
    for layer in net.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)): layer.bfloat16()
    return net
def paint_flow(m, net, codes, number, steps=4, away=0., variety=.85, shun=False, batch=8):
    out = []
    tc = stranger(m, codes, number, variety)
    with torch.no_grad():
        for r in torch.arange(len(codes.identity)).split(batch):
            c = rows_of(codes, r); start = noise_of(number).expand(len(r), -1, -1, -1)
            toward, own = cond_of(c, tc[r]), cond_of(c)
            here = start; ts = times(0., steps)
            for a, b in zip(ts[:-1], ts[1:]):
                at = here.new_full((len(r),), a)
                with torch.autocast('cpu', torch.bfloat16):
                    args = (c.latents, c.mask, c.features[16])
                    v = (net(here, at, *args, toward, c.identity) if shun else net(here, at, *args, toward)).float()
                    if away: v = v + away * (v - net(here, at, *args, own).float())
                here = here + (b - a) * v
            out.append(m._join(c.latents * (1 - c.mask) + here * c.mask, c))
    return torch.cat(out)
def paint_shipped(m, image, number):
    out = []
    with torch.no_grad():
        for part in image.split(8): out.append(m.anonymize(part, key_of(m, number).expand(len(part), -1, -1)))
    return torch.cat(out)
def save(name, number, which, pics):
    bad = ~torch.isfinite(pics).all(1).all(1).all(1)
    np.savez_compressed(STORE / f'{name}_{which}_{number}.npz', p=to_bytes(pics.nan_to_num()).numpy(), bad=bad.numpy())
def load(name, number, which):
    d = np.load(STORE / f'{name}_{which}_{number}.npz'); return torch.from_numpy(d['p']), torch.from_numpy(d['bad'])

def cmp(j, a, b):
    a, b = j.prepared(a), j.prepared(b)
    return a @ b.T if j.similarity == "cosine" else -torch.cdist(a, b)
def judges(m): 
    js = [mobilefacenet(CKPT), shipped_recogniser(m.bundle, m.bundle)]
    try: js.insert(1, dlib_resnet())
    except Exception as ex_: print('no dlib', ex_)
    return js
def table(names, m=None):
    m = m or method(); image, person = real(); js = judges(m); mesh = FaceMesh()
    u = to_bytes(image).float() / 127.5 - 1
    orig = [j.embed(u).float() for j in js]; thr = [j.threshold(e, person) for j, e in zip(js, orig)]
    def pts(x):
        p, c = [], []
        for part in x.split(16):
            a, b = mesh.points(part.permute(0, 2, 3, 1).contiguous().numpy()); p.append(a); c.append(b)
        return torch.from_numpy(np.concatenate(p)) / 128, np.concatenate(c)
    po, _ = pts(to_bytes(image)); eo = expression(po)
    width = (po[:, 33] - po[:, 263]).norm(dim=1)
    same = (person[:, None] == person) & ~torch.eye(len(person), dtype=torch.bool); oth = person[:, None] != person
    lines = []
    for name in names:
        ks = [k for k in (1, 2) if (STORE / f'{name}_real_{k}.npz').exists()]
        emb = {}; res = {j.name: {} for j in js}; md, ex_ = [], {}
        for k in ks:
            p, bad = load(name, k, 'real'); x = p.float() / 127.5 - 1
            for j in js: emb[j.name, k] = j.embed(x).float()
            q, _ = pts(p); md.append(float(((q - po).norm(dim=-1).mean(1) / width).mean()))
            en = expression(q)
            for key in en:
                a, b = en[key].float().reshape(len(q), -1)[:, 0].numpy(), eo[key].float().reshape(len(q), -1)[:, 0].numpy()
                ok = np.isfinite(a) & np.isfinite(b); ex_.setdefault(key, []).append(np.corrcoef(a[ok], b[ok])[0, 1])
        line = f'{name:28s}'
        for j, e0, t in zip(js, orig, thr):
            s = torch.stack([j.compare_rows(emb[j.name, k], e0) for k in ks])
            other = torch.stack([((cmp(j, emb[j.name, k], e0) > t) & same).sum(1) / same.sum(1) for k in ks]).mean()
            two = (j.compare_rows(emb[j.name, 1], emb[j.name, 2]) > t).float().mean() if len(ks) > 1 else float('nan')
            share = torch.stack([((cmp(j, emb[j.name, k], emb[j.name, k]) > t) & oth).sum() / oth.sum() for k in ks]).mean()
            one = torch.stack([((cmp(j, emb[j.name, k], emb[j.name, k]) > t) & same).sum() / same.sum() for k in ks]).mean()
            line += f' | {j.name}: rec {(s > t).float().mean():.3f} other {other:.3f} mean {s.mean():.3f} 2keys {two:.3f} 1person {one:.3f} people {share:.3f}'
        line += f' | mesh {np.mean(md):.4f} ' + ' '.join(f'{k} {np.mean(v):.3f}' for k, v in ex_.items())
        lines.append(line); print(line, flush=True)
    print('thresholds', [(j.name, round(t, 3)) for j, t in zip(js, thr)])
    return lines
if __name__ == '__main__':
    torch.set_num_threads(1)
    cmd = sys.argv[1]
    m = method()
    sets = {'real': real()[0], 'synth': synth()}
    if cmd == 'base':
        for which in ('synth', 'real'):
            x = sets[which]; codes, emb, conf = look(m, x, which)
            t = load_flow().eval().requires_grad_(False); bf16(t)
            for k in (1, 2):
                c0 = time.process_time(); save('flow_4', k, which, paint_flow(m, t, codes, k)); c1 = time.process_time()
                save('flow_4_away3', k, which, paint_flow(m, t, codes, k, away=3.)); c2 = time.process_time()
                save('shipped', k, which, paint_shipped(m, x, k)); c3 = time.process_time()
                print(which, k, 'cpu s a face', [(b - a) / len(x) for a, b in ((c0, c1), (c1, c2), (c2, c3))], flush=True)
    if cmd == 'ckpt':
        name, path = sys.argv[2], sys.argv[3]; variety = float(sys.argv[4]) if len(sys.argv) > 4 else .85; steps = int(sys.argv[5]) if len(sys.argv) > 5 else 4
        state = torch.load(W / path, weights_only=False); net = Avoiding(load_flow()).eval().requires_grad_(False); net.load_state_dict(state['ema']); bf16(net)
        print('batch', state['batch'], 'sec', state['sec'])
        shun = not state['opts'].get('noshun')
        for which in ('synth', 'real'):
            codes, emb, conf = look(m, sets[which], which)
            for k in (1, 2): save(name, k, which, paint_flow(m, net, codes, k, steps=steps, variety=variety, shun=shun))
    if cmd == 'table': table(sys.argv[2:], m)
